"""What other checks say of a pair of outputs: numpy's, PyTorch's and Polygraphy's own comparison."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from parity.diagnose.observation import Array
from parity.errors import BackendError
from parity.runtime.environment import environment

Pairs = Sequence[tuple[Array, Array]]
TOLERANCE = 1e-5


def say(outputs: Sequence[Pairs], python: str) -> dict[str, list[bool]]:
    """By check, whether it objects to any of the pairs of each run. `python`: an interpreter that has torch.

    torch.testing.assert_close has tolerances of its own, 1e-5 and a relative 1.3e-6 for float32. Polygraphy
    is left out where it is not installed.
    """
    found = {"np.allclose": [not all(_allclose(*pair) for pair in pairs) for pairs in outputs]}
    found["assert_close"] = _assert_close(outputs, python or sys.executable)
    if (polygraphy := _polygraphy(outputs)) is not None:
        found["polygraphy"] = polygraphy
    return found


def _allclose(one: Array, other: Array) -> bool:
    return one.shape == other.shape and np.allclose(one, other, rtol=TOLERANCE, atol=TOLERANCE)


def _assert_close(outputs: Sequence[Pairs], python: str) -> list[bool]:
    """By a process of its own: nothing here imports a framework."""
    with tempfile.TemporaryDirectory(prefix="parity-") as scratch:
        file = Path(scratch) / "outputs.npz"
        arrays = {
            f"{run}/{number}/{side}": array
            for run, pairs in enumerate(outputs)
            for number, pair in enumerate(pairs)
            for side, array in enumerate(pair)
        }
        np.savez(file, **arrays)  # type: ignore[arg-type]  # the names are no options
        command = [python, "-m", "torch_impl.harness.assert_close", str(file)]
        done = subprocess.run(command, env=environment(Path(scratch)), capture_output=True, text=True, check=False)
    if done.returncode:
        raise BackendError(f"{' '.join(command)}: {done.stderr.strip()[-400:]}")
    objections = set(json.loads(done.stdout))
    return [run in objections for run in range(len(outputs))]


def _polygraphy(outputs: Sequence[Pairs]) -> list[bool] | None:
    try:
        from polygraphy.comparator import IterationResult, SimpleCompareFunc
        from polygraphy.logger import G_LOGGER
    except ImportError:
        return None
    compare = SimpleCompareFunc(rtol=TOLERANCE, atol=TOLERANCE)
    with G_LOGGER.verbosity(G_LOGGER.CRITICAL), np.errstate(all="ignore"):  # infinities are for it to judge
        return [
            not all(all(compare(*(IterationResult({"output": array}) for array in pair)).values()) for pair in pairs)
            for pairs in outputs
        ]
