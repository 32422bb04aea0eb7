"""The keys of a trace's tensors, `kind/name`, the files that hold them, and what every report calls them in words."""

import itertools
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from parity.core.arrays import Array

# The name of the whole model as a module, and of the tensor that it returns. The parentheses keep it apart from any
# submodule's name. A model's further outputs are "(model)#1", "(model)#2"..., or "(model).NAME" if outputs have names.
MODEL = "(model)"
# The gradient of an input is "(input).NAME".
INPUT = "(input)"
# In the note on a float32 computation (`lifted`): its values were rounded before they came back to float64.
STAY_ROUNDED = "of values that stay rounded to"
# In execution order: the drawn samples, forward, loss, backward, the state after the update.
KINDS: Final = ("sample", "input", "activation", "loss", "gradient", "parameter", "buffer", "optimizer_state")
# Not stored but derived when traces are compared: a parameter minus the same parameter at the step recorded before.
UPDATE: Final = "update"
# The names of kind input that belong to the whole model; any other name is a module's.
MODEL_INPUTS: Final = ("input", "target")
RUNS: Final = ("low", "high", "witness")
# The suffix of a gradient as backward left it on one replica, before it is reduced over replicas and clipped.
LOCAL: Final = "@local"
# Suffixes of evidence of what an optimizer does, which is not compared: a gradient as it is applied, where the
# optimizer or its hooks have changed any; and its squares, where rows of one id are squared before they are added: to
# update a weight, or to clip.
APPLIED: Final = "@applied"
SQUARES: Final = "@squares"
CLIPPED: Final = "@clipped"
EVIDENCE: Final = (APPLIED, SQUARES, CLIPPED)
INITIAL: Final = "initial"  # the file of the state before the first step
MANIFEST: Final = "manifest.json"


def key(kind: str, name: str, repeat: int = 0) -> str:
    """Return `kind/name`, followed by `#repeat` for the further tensors of that name within one step."""
    return numbered(f"{kind}/{name}", repeat)


def numbered(name: str, repeat: int) -> str:
    """Return a name, followed by `#repeat` but for the first tensor that has it."""
    return f"{name}#{repeat}" if repeat else name


def stored(kind: str, name: str) -> str:
    """Return the key under which a trace holds a tensor; of an update, that of its parameter."""
    return key("parameter" if kind == UPDATE else kind, name)


def unused(key: str, taken: Collection[str]) -> str:
    """Return the key with the lowest number, e.g. `kind/name#2`, that is not taken yet."""
    plain = key.partition("#")[0]
    return next(f"{plain}#{repeat}" for repeat in itertools.count(1) if f"{plain}#{repeat}" not in taken)


def place(key: str) -> tuple[int, bool]:
    """Return a sort key for a tensor's position within a step, to merge tensors of ranks that ran in parallel."""
    kind, name = split(key)
    if kind == "input" and name.partition("#")[0] not in MODEL_INPUTS:
        kind = "activation"  # the inputs of modules alternate with the outputs of others in execution order
    return KINDS.index(kind) if kind in KINDS else len(KINDS), not name.endswith(LOCAL)


def split(key: str) -> tuple[str, str]:
    """Return kind and name of a key."""
    kind, _, name = key.partition("/")
    return kind, name


def of_kind(tensors: Mapping[str, Array], kind: str) -> dict[str, Array]:
    """Return the tensors of one kind by name."""
    named = ((*split(key), array) for key, array in tensors.items())
    return {name: array for own, name, array in named if own == kind}


def parameter(kind: str, name: str) -> str:
    """Return the parameter that a tensor belongs to: of an optimizer's state, the one that the slot is kept for."""
    return name.rpartition(".")[0] if kind == "optimizer_state" else name


def plain(name: str) -> str:
    """Return the module path in a tensor's name: without the call number (#N) and the shard mark (@...)."""
    return name.partition("#")[0].partition("@")[0]


def number(name: str) -> int:
    """Return the call number in a tensor's name."""
    return _parts(name)[2]


def step_file(step: int | None) -> str:
    """Return the stem of a step's file name; None stands for the state before the first step."""
    return INITIAL if step is None else f"step-{step:06d}"


def step_of(stem: str) -> int | None:
    """Return the step that a file's stem names; None is the state before the first step."""
    return None if stem == INITIAL else int(stem.removeprefix("step-"))


NOUNS: Final = {
    "sample": "samples of the batch",
    "activation": "output",
    UPDATE: "update of parameter",
    "gradient": "gradient of parameter",
    "optimizer_state": "optimizer state",
    "layout": "device layout:",
}
_INPUTS: Final = dict(zip(MODEL_INPUTS, ("input of the model", "target of the loss"), strict=True))
_LOCAL: Final = LOCAL.removeprefix("@")


class Words(NamedTuple):
    """A tensor in words: what it is, its name ("" where the first words tell all), and what follows the name."""

    what: str
    name: str
    rest: str

    def __str__(self) -> str:
        return f"{self.what} `{self.name}`{self.rest}" if self.name else f"{self.what}{self.rest}"


def in_words(kind: str, name: str, module_class: str = "") -> Words:
    """Return what a tensor is called; `module_class` is the class of its module, "" if that is not known."""
    path, part, repeat = _parts(name)
    rest = f" ({module_class})" if module_class else ""
    if part:
        rest += f", {'before it is reduced over replicas' if part == _LOCAL else part}"
    if repeat:
        rest += f", number {repeat + 1} in the step"
    noun, output = NOUNS.get(kind, kind), path.removeprefix(MODEL).removeprefix(".")
    if kind == "input" and path in _INPUTS:
        return Words(_INPUTS[path], "", rest)
    if kind in ("activation", "input") and path.startswith(MODEL):
        return Words(noun, output, f" of the model{rest}") if output else Words(f"{noun} of the model", "", rest)
    if kind in ("activation", "input"):
        return Words(f"{noun} of module", path, rest)
    if kind == "sample":
        return Words(noun, "", rest)
    if path.startswith(INPUT):
        return Words("gradient of input", path.removeprefix(INPUT).removeprefix("."), rest)
    return Words(noun, "" if path == kind else path, rest)


def owner(kind: str, name: str) -> str | None:
    """Return the path of the module that a tensor belongs to, "" for the model; None if it belongs to none."""
    path = _parts(name)[0]
    if kind in ("sample", "loss", "layout") or path in _INPUTS or path.startswith(INPUT):
        return None
    if kind in ("activation", "input"):
        return "" if path.startswith(MODEL) else path
    return parameter(kind, path).rpartition(".")[0]


def _parts(name: str) -> tuple[str, str, int]:
    """Return the path in a tensor's name, the mark behind its "@" ("" without one), and the number behind its "#"."""
    path = plain(name)
    part = name.partition("@")[2].partition("#")[0]
    repeat = name.partition("#")[2].partition("@")[0]
    return path, part, int(repeat) if repeat.isdecimal() else 0
