"""Faults: mistakes planted on purpose, by name, so that the self-test can demand that they are found.

Each is a small change to what a run calls, undone when the run is over.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from keras_impl.faults import (
    attention,
    composites,
    data,
    dropouts,
    initial_parameters,
    layers,
    losses,
    optimizers,
    placement,
    precision,
    processes,
    reductions,
)
from keras_impl.faults.mutate import Patches

EVERYWHERE = (
    initial_parameters,
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

# By name: the patches, and the only precision at which they are planted ("" for all).
FAULTS: dict[str, tuple[Patches, str]] = {
    **{name: (patches, "") for part in EVERYWHERE for name, patches in part.FAULTS.items()},
    **{name: (patches, "float32") for name, patches in precision.FAULTS.items()},
}


@contextmanager
def planted(faults: str, at: str) -> Iterator[None]:
    """Plant the faults, whose names are joined by "+", within the block, as far as they are for this precision."""
    with ExitStack() as stack:
        for name in filter(None, faults.split("+")):
            patches, only = FAULTS[name]
            for patch in patches() if only in ("", at) else ():
                stack.enter_context(patch)
        yield
