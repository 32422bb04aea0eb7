"""Ask other checks about the same outputs: the comparisons of numpy, PyTorch and Polygraphy."""

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
    """Return, for each check by name, whether it objects to any pair of outputs of each run.

    `python` is an interpreter that has torch. torch.testing.assert_close uses tolerances of its own, 1e-5 absolute
    and 1.3e-6 relative for float32. Polygraphy is left out if it is not installed.

    Raises BackendError.
    """
    objections_by_check = {"np.allclose": [not all(_allclose(*pair) for pair in pairs) for pairs in outputs]}
    for name, objections in _in_a_process(outputs, python or sys.executable).items():
        objections_by_check[name] = [run in objections for run in range(len(outputs))]
    return objections_by_check


def _allclose(torch: Array, keras: Array) -> bool:
    return torch.shape == keras.shape and np.allclose(torch, keras, rtol=TOLERANCE, atol=TOLERANCE)


def _in_a_process(outputs: Sequence[Pairs], python: str) -> dict[str, list[int]]:
    """Run the checks that need torch in a process of their own, since nothing here imports a framework.

    Return, for each check, the numbers of the runs that it objects to.
    """
    arrays = {
        f"{run}/{number}/{side}": array
        for run, pairs in enumerate(outputs)
        for number, pair in enumerate(pairs)
        for side, array in enumerate(pair)
    }
    with tempfile.TemporaryDirectory(prefix="parity-") as scratch:
        file = Path(scratch) / "outputs.npz"
        np.savez(file, **arrays)  # type: ignore[arg-type]  # numpy's stub takes these names for options of savez
        command = [python, "-m", "torch_impl.instruments.other_checks", str(file)]
        variables = environment(Path(scratch), python=python)
        done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BackendError(f"{' '.join(command)}: {done.stderr.strip()[-400:]}")
    return msgspec.json.decode(done.stdout.splitlines()[-1], type=dict[str, list[int]])
