"""The keys of a trace's tensors, `kind/name`, and the files that hold them."""

from typing import Final

# In execution order: before the step, forward, loss, backward, update.
KINDS: Final = ("sample", "input", "activation", "loss", "gradient", "parameter", "buffer", "optimizer_state")
# Derived when traces are compared: a parameter now minus the parameter at the step recorded before.
UPDATE: Final = "update"
RUNS: Final = ("low", "high", "witness")
INITIAL: Final = "initial"  # the file of the state before the first step
MANIFEST: Final = "manifest.json"


def key(kind: str, name: str, repeat: int = 0) -> str:
    """`kind/name`; the second tensor of this name within one step is `kind/name#1`."""
    return f"{kind}/{name}#{repeat}" if repeat else f"{kind}/{name}"


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
