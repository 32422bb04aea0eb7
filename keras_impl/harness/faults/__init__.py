"""Mistakes planted on purpose, by name, so that the self-test and the tests can demand that they are found.

Each is a small change to what a run calls, undone behind it.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from keras_impl.harness.faults import (
    attention,
    composites,
    data,
    dropouts,
    layers,
    losses,
    optimizers,
    placement,
    precision,
    processes,
    reductions,
    starts,
)
from keras_impl.harness.faults.mutate import Patches

EVERYWHERE = (
    starts,
    layers,
    attention,
    composites,
    dropouts,
    losses,
    optimizers,
    data,
    reductions,
    placement,
    processes,
)

# Name to the patches and the only precision that they are planted at ("" for all).
FAULTS: dict[str, tuple[Patches, str]] = {
    **{name: (patches, "") for part in EVERYWHERE for name, patches in part.FAULTS.items()},
    **{name: (patches, "float32") for name, patches in precision.FAULTS.items()},
}


@contextmanager
def planted(fault: str, at: str) -> Iterator[None]:
    """The fault, if it is one of this precision, for the length of the block; none if it is ""."""
    patches, only = FAULTS[fault] if fault else (list, "")
    with ExitStack() as stack:
        if only in ("", at):
            for patch in patches():
                stack.enter_context(patch)
        yield
