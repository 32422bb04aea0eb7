"""Other comparison tools, against which the self-test measures this project.

`python -m torch_impl.instruments.other_checks FILE.npz` prints, as JSON, the numbers of the runs that each tool objects
to. The file holds pairs of arrays `run/number/0` and `run/number/1`. The tools are numpy.allclose,
torch.testing.assert_close and, if installed, Polygraphy (which imports torch, and therefore belongs here).
"""

import json
import sys
from collections.abc import Callable

import numpy as np
import torch

Check = Callable[[np.ndarray, np.ndarray], bool]
TOLERANCE = 1e-5


def checks() -> dict[str, Check]:
    """Return the checks by name; each tells whether two arrays are close."""
    try:
        from polygraphy.comparator import IterationResult, SimpleCompareFunc
        from polygraphy.logger import G_LOGGER
    except ImportError:
        return {"np.allclose": _allclose, "assert_close": _assert_close}
    G_LOGGER.module_severity = G_LOGGER.CRITICAL
    compare = SimpleCompareFunc(rtol=TOLERANCE, atol=TOLERANCE)

    def polygraphy(*pair: np.ndarray) -> bool:
        with np.errstate(all="ignore"):  # infinities are for the check to handle
            return all(compare(*(IterationResult({"output": array}) for array in pair)).values())

    return {"np.allclose": _allclose, "assert_close": _assert_close, "polygraphy": polygraphy}


def objections(arrays: dict[str, np.ndarray], close: Check) -> list[int]:
    """Return the numbers of the runs in which any pair of arrays is not close."""
    pairs = {name.rpartition("/")[0] for name in arrays}
    return sorted(
        {int(pair.partition("/")[0]) for pair in pairs if not close(arrays[f"{pair}/0"], arrays[f"{pair}/1"])}
    )


def _allclose(reference: np.ndarray, candidate: np.ndarray) -> bool:
    return reference.shape == candidate.shape and np.allclose(reference, candidate, TOLERANCE, TOLERANCE)


def _assert_close(reference: np.ndarray, candidate: np.ndarray) -> bool:
    try:
        torch.testing.assert_close(torch.from_numpy(reference), torch.from_numpy(candidate))
    except AssertionError:
        return False
    return True


if __name__ == "__main__":
    with np.load(sys.argv[1]) as file:
        read = dict(file)
    print(json.dumps({name: objections(read, close) for name, close in checks().items()}))
