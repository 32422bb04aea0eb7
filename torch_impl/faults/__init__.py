"""Faults: mistakes planted on purpose, by name, so that the self-test can demand that they are found.

Each is a small change to what a run calls, undone when the run is over.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from torch_impl.faults import distribution, model, numerics, training
from torch_impl.faults.mutate import Patches

EVERYWHERE = (numerics, model, training, distribution)

# By name: the patches, and the only precision at which they are planted ("" for all).
FAULTS: dict[str, tuple[Patches, str]] = {
    **{name: (patches, "") for part in EVERYWHERE for name, patches in part.FAULTS.items()},
    **{name: (patches, "float32") for name, patches in numerics.FAULTS_IN_FLOAT32.items()},
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
