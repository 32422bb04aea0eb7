"""The keys of a trace's tensors, `kind/name`, and the names of the files that hold them."""

import itertools
from collections.abc import Collection
from typing import Final

# In execution order: the drawn samples, forward, loss, backward, the state after the update.
KINDS: Final = ("sample", "input", "activation", "loss", "gradient", "parameter", "buffer", "optimizer_state")
# Not stored but derived when traces are compared: a parameter minus the same parameter at the step recorded before.
UPDATE: Final = "update"
# The names of kind input that belong to the whole model; any other name is a module's.
MODEL_INPUTS: Final = ("input", "target")
RUNS: Final = ("low", "high", "witness")
# The suffix of a gradient as backward left it on one replica, before it is reduced over replicas and clipped.
LOCAL: Final = "@local"
INITIAL: Final = "initial"  # the file of the state before the first step
MANIFEST: Final = "manifest.json"


def key(kind: str, name: str, repeat: int = 0) -> str:
    """Return `kind/name`, followed by `#repeat` for the further tensors of that name within one step."""
    return f"{kind}/{name}#{repeat}" if repeat else f"{kind}/{name}"


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


def step_file(step: int | None) -> str:
    """Return the stem of a step's file name; None stands for the state before the first step."""
    return INITIAL if step is None else f"step-{step:06d}"


def step_of(stem: str) -> int | None:
    """Return the step that a file's stem names; None is the state before the first step."""
    return None if stem == INITIAL else int(stem.removeprefix("step-"))
