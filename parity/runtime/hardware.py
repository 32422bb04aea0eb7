"""The devices of this machine that both backends can use."""

import functools
import shutil
import subprocess
import sys

from parity.config.devices import Devices
from parity.config.schema import Case
from parity.core import wording
from parity.core.errors import MissingError
from parity.runtime.environment import MISSING, not_installed

WITHOUT_GPU = Devices("cpu", 2)
COUNT = {
    "torch": "import torch; print(torch.cuda.device_count())",
    "keras": "import tensorflow as tf; print(len(tf.config.list_physical_devices('GPU')))",
}


def missing(devices: Devices, pythons: dict[str, str]) -> str:
    """Return why nothing can run on these devices, or "". Fewer GPUs than requested are enough: they are shared.

    Raises MissingError where that is because a framework is not installed.
    """
    if devices.kind == "cpu" or _seen(pythons):
        return ""
    return f"{devices}: this machine has no GPU that {' and '.join(pythons)} can use"


def crowded(case: Case, devices: Devices, pythons: dict[str, str]) -> str:
    """Return why a case cannot run on fewer GPUs than it has devices, or "".

    NCCL needs a GPU for each rank. gloo does not, but it can neither send nor gather tensors on a GPU
    (docs.pytorch.org/docs/stable/distributed.html, "Backends").
    """
    strategy = case.distribution
    if devices.kind == "cpu" or not (strategy.splits_model or strategy.has_dtensors):
        return ""
    count = gpus(pythons)
    return (
        f"{case.strategy} needs {wording.count(devices.number, 'GPU')}, this machine has {count}"
        if count < devices.number
        else ""
    )


def available(pythons: dict[str, str]) -> Devices:
    """Return the GPUs that all backends can use, or else two CPU devices.

    `pythons`: each backend's interpreter, "" for the running one.
    """
    count = gpus(pythons)
    return Devices("gpu", count) if count else WITHOUT_GPU


def gpus(pythons: dict[str, str]) -> int:
    """Return the number of GPUs that all backends can use; a framework that is not installed can use none."""
    try:
        return _seen(pythons)
    except MissingError:  # reported where the framework is needed
        return 0


def _seen(pythons: dict[str, str]) -> int:
    """Return the number of GPUs that all backends can use. Raises MissingError.

    The frameworks take seconds to load, so they are asked only if nvidia-smi, the driver's own tool, is installed.
    """
    if shutil.which("nvidia-smi") is None:
        return 0
    return min(_count(python or sys.executable, backend) for backend, python in pythons.items())


@functools.cache
def _count(python: str, backend: str) -> int:
    """Return the number of GPUs that a backend can use; 0 if it cannot say. Raises MissingError."""
    try:
        completed = subprocess.run([python, "-c", COUNT[backend]], capture_output=True, text=True, timeout=120)
        if absent := MISSING.search(completed.stderr):
            raise MissingError(f"{backend}: {not_installed(absent[1], backend, python)}")
        return int(completed.stdout.split()[-1])
    except (OSError, subprocess.TimeoutExpired, ValueError, IndexError):
        return 0
