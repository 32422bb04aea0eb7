"""python -m torch_impl.harness.assert_close FILE.npz: the runs, as JSON, whose outputs it objects to.

The file holds arrays `run/number/0` and `run/number/1`, to be compared by torch.testing.assert_close.
"""

import json
import sys

import numpy as np
import torch


def objections(arrays: dict[str, np.ndarray]) -> list[int]:
    """The numbers of the runs of which any pair is not close."""
    pairs = {name.rpartition("/")[0] for name in arrays}
    found = {int(pair.partition("/")[0]) for pair in pairs if not _close(arrays[f"{pair}/0"], arrays[f"{pair}/1"])}
    return sorted(found)


def _close(one: np.ndarray, other: np.ndarray) -> bool:
    try:
        torch.testing.assert_close(torch.from_numpy(one), torch.from_numpy(other))
    except AssertionError:
        return False
    return True


if __name__ == "__main__":
    with np.load(sys.argv[1]) as file:
        print(json.dumps(objections(dict(file))))
