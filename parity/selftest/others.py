"""What other checks say of a pair of outputs: numpy's, PyTorch's and Polygraphy's own comparison."""

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np

from parity.core.arrays import Array
from parity.core.errors import BackendError
from parity.runtime.environment import environment

Pairs = Sequence[tuple[Array, Array]]
TOLERANCE = 1e-5


def say(outputs: Sequence[Pairs], python: str) -> dict[str, list[bool]]:
    """By check, whether it objects to any of the pairs of each run. `python`: an interpreter that has torch.

    torch.testing.assert_close has tolerances of its own, 1e-5 and a relative 1.3e-6 for float32. Polygraphy
    is left out where it is not installed. Raises BackendError.
    """
    found = {"np.allclose": [not all(_allclose(*pair) for pair in pairs) for pairs in outputs]}
    for name, objections in _in_a_process(outputs, python or sys.executable).items():
        found[name] = [run in objections for run in range(len(outputs))]
    return found


def _allclose(one: Array, other: Array) -> bool:
    return one.shape == other.shape and np.allclose(one, other, rtol=TOLERANCE, atol=TOLERANCE)


def _in_a_process(outputs: Sequence[Pairs], python: str) -> dict[str, list[int]]:
    """What needs torch: nothing here imports a framework."""
    arrays = {
        f"{run}/{number}/{side}": array
        for run, pairs in enumerate(outputs)
        for number, pair in enumerate(pairs)
        for side, array in enumerate(pair)
    }
    with tempfile.TemporaryDirectory(prefix="parity-") as scratch:
        file = Path(scratch) / "outputs.npz"
        np.savez(file, **arrays)  # type: ignore[arg-type]  # the names are no options
        command = [python, "-m", "torch_impl.harness.other_checks", str(file)]
        variables = environment(Path(scratch), python=python)
        done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BackendError(f"{' '.join(command)}: {done.stderr.strip()[-400:]}")
    return msgspec.json.decode(done.stdout.splitlines()[-1], type=dict[str, list[int]])
