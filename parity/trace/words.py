"""The tensors of a trace in words, as every report names them: "output of module `encoder.norm` (LayerNorm)"."""

from typing import Final, NamedTuple

from parity.core.names import INPUT, MODEL
from parity.trace import keys

NOUNS: Final = {
    "sample": "samples of the batch",
    "activation": "output",
    keys.UPDATE: "update of parameter",
    "gradient": "gradient of parameter",
    "optimizer_state": "optimizer state",
    "layout": "device layout:",
}
MODEL_INPUTS: Final = dict(zip(keys.MODEL_INPUTS, ("input of the model", "target of the loss"), strict=True))
LOCAL: Final = keys.LOCAL.removeprefix("@")


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
        rest += f", {'before it is reduced over replicas' if part == LOCAL else part}"
    if repeat:
        rest += f", number {repeat + 1} in the step"
    noun, output = NOUNS.get(kind, kind), path.removeprefix(MODEL).removeprefix(".")
    if kind == "input" and path in MODEL_INPUTS:
        return Words(MODEL_INPUTS[path], "", rest)
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
    if kind in ("sample", "loss", "layout") or path in MODEL_INPUTS or path.startswith(INPUT):
        return None
    if kind in ("activation", "input"):
        return "" if path.startswith(MODEL) else path
    weight = path.rpartition(".")[0] if kind == "optimizer_state" else path
    return weight.rpartition(".")[0]


def _parts(name: str) -> tuple[str, str, int]:
    """Return the path in a tensor's name, the mark behind its "@" ("" without one), and the number behind its "#"."""
    path = name.partition("#")[0].partition("@")[0]
    part = name.partition("@")[2].partition("#")[0]
    repeat = name.partition("#")[2].partition("@")[0]
    return path, part, int(repeat) if repeat.isdecimal() else 0
