"""Mistakes planted on purpose, by name, so that the self-test and the tests can demand that they are found.

Each is a small change to what a run calls, undone behind it.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from torch_impl.harness.faults import (
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
from torch_impl.harness.faults.mutate import Patches

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

# Name to the patches and the only precision that they are planted at ("" for all).
FAULTS: dict[str, tuple[Patches, str]] = {
    **{name: (patches, "") for part in EVERYWHERE for name, patches in part.FAULTS.items()},
    **{name: (patches, "float32") for name, patches in precision.FAULTS.items()},
}


@contextmanager
def planted(faults: str, at: str) -> Iterator[None]:
    """The faults, by their names joined by +, that are of this precision, for the length of the block."""
    with ExitStack() as stack:
        for name in filter(None, faults.split("+")):
            patches, only = FAULTS[name]
            for patch in patches() if only in ("", at) else ():
                stack.enter_context(patch)
        yield
