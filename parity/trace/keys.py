"""The keys of a trace's tensors, `kind/name`, and the files that hold them."""

import itertools
from collections.abc import Collection
from typing import Final

# In execution order: before the step, forward, loss, backward, update.
KINDS: Final = ("sample", "input", "activation", "loss", "gradient", "parameter", "buffer", "optimizer_state")
# Derived when traces are compared: a parameter now minus the parameter at the step recorded before.
UPDATE: Final = "update"
# What goes into the whole model; any other name of kind input is a module's.
MODEL_INPUTS: Final = ("input", "target")
RUNS: Final = ("low", "high", "witness")
# Behind the name of a gradient that backward left on one replica, before all reduction and clipping.
LOCAL: Final = "@local"
INITIAL: Final = "initial"  # the file of the state before the first step
MANIFEST: Final = "manifest.json"


def key(kind: str, name: str, repeat: int = 0) -> str:
    """`kind/name`; the second tensor of this name within one step is `kind/name#1`."""
    return f"{kind}/{name}#{repeat}" if repeat else f"{kind}/{name}"


def unused(key: str, taken: Collection[str]) -> str:
    """The next number of a key that is not taken yet."""
    plain = key.partition("#")[0]
    return next(f"{plain}#{repeat}" for repeat in itertools.count(1) if f"{plain}#{repeat}" not in taken)


def place(key: str) -> tuple[int, bool]:
    """Where a tensor stands in a step, for tensors of ranks or replicas that ran at the same time."""
    kind, name = split(key)
    if kind == "input" and name.partition("#")[0] not in MODEL_INPUTS:
        kind = "activation"  # what goes into a module happens between what comes out of others
    return KINDS.index(kind) if kind in KINDS else len(KINDS), not name.endswith(LOCAL)


def split(key: str) -> tuple[str, str]:
    """Kind and name of a key."""
    kind, _, name = key.partition("/")
    return kind, name


def step_file(step: int | None) -> str:
    """The stem of the file of a step; None is the state before the first."""
    return INITIAL if step is None else f"step-{step:06d}"


def step_of(stem: str) -> int | None:
    """The step of a file's stem."""
    return None if stem == INITIAL else int(stem.removeprefix("step-"))
