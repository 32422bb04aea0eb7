"""python -m torch_impl.harness.other_checks FILE.npz: by check, the runs whose outputs it objects to, as JSON.

The file holds arrays `run/number/0` and `run/number/1`, to be compared by torch.testing.assert_close, and by
Polygraphy where it is installed. That one imports torch by itself, so that it belongs here too.
"""

import json
import sys
from collections.abc import Callable

import numpy as np
import torch

Check = Callable[[np.ndarray, np.ndarray], bool]
TOLERANCE = 1e-5


def checks() -> dict[str, Check]:
    """Whether two arrays are close, as each check sees it."""
    try:
        from polygraphy.comparator import IterationResult, SimpleCompareFunc
        from polygraphy.logger import G_LOGGER
    except ImportError:
        return {"assert_close": _assert_close}
    G_LOGGER.module_severity = G_LOGGER.CRITICAL
    compare = SimpleCompareFunc(rtol=TOLERANCE, atol=TOLERANCE)

    def polygraphy(*pair: np.ndarray) -> bool:
        with np.errstate(all="ignore"):  # infinities are for it to judge
            return all(compare(*(IterationResult({"output": array}) for array in pair)).values())

    return {"assert_close": _assert_close, "polygraphy": polygraphy}


def objections(arrays: dict[str, np.ndarray], close: Check) -> list[int]:
    """The numbers of the runs of which any pair is not close."""
    pairs = {name.rpartition("/")[0] for name in arrays}
    return sorted(
        {int(pair.partition("/")[0]) for pair in pairs if not close(arrays[f"{pair}/0"], arrays[f"{pair}/1"])}
    )


def _assert_close(one: np.ndarray, other: np.ndarray) -> bool:
    try:
        torch.testing.assert_close(torch.from_numpy(one), torch.from_numpy(other))
    except AssertionError:
        return False
    return True


if __name__ == "__main__":
    with np.load(sys.argv[1]) as file:
        read = dict(file)
    print(json.dumps({name: objections(read, close) for name, close in checks().items()}))
