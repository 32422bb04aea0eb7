"""Which devices this machine has that both backends see."""

import functools
import shutil
import subprocess
import sys

from parity.config.devices import Devices
from parity.config.schema import STAGED, Case
from parity.core.errors import MissingError
from parity.runtime.environment import MISSING, not_installed

WITHOUT_GPU = Devices("cpu", 2)
COUNT = {
    "torch": "import torch; print(torch.cuda.device_count())",
    "keras": "import tensorflow as tf; print(len(tf.config.list_physical_devices('GPU')))",
}


def missing(devices: Devices, pythons: dict[str, str]) -> str:
    """Why nothing can be run on these devices, or ""; fewer GPUs than asked for are shared.

    Raises MissingError where that is because a framework is not installed.
    """
    if devices.kind == "cpu" or _seen(pythons):
        return ""
    return f"{devices}: there is no GPU here that {' and '.join(pythons)} see{'s' * (len(pythons) == 1)}"


def crowded(case: Case, devices: Devices, pythons: dict[str, str]) -> str:
    """Why a case cannot be run on fewer GPUs than it has devices, or "".

    NCCL wants a GPU for each rank; gloo, which does not, neither sends nor gathers what is on a GPU
    (docs.pytorch.org/docs/stable/distributed.html, "Backends").
    """
    if devices.kind == "cpu" or case.strategy not in (*STAGED, "tensor_parallel"):
        return ""
    there = gpus(pythons)
    return f"{case.strategy} needs {devices.number} GPUs, there are {there}" if there < devices.number else ""


def available(pythons: dict[str, str]) -> Devices:
    """The GPUs that every backend sees, or else two CPU devices.

    `pythons`: each backend's interpreter, "" for this one.
    """
    seen = gpus(pythons)
    return Devices("gpu", seen) if seen else WITHOUT_GPU


def gpus(pythons: dict[str, str]) -> int:
    """How many there are that every backend sees; a framework that is not there sees none."""
    try:
        return _seen(pythons)
    except MissingError:  # said where the framework is needed
        return 0


def _seen(pythons: dict[str, str]) -> int:
    """Return the number of GPUs that every backend sees. Raises MissingError.

    The frameworks are only asked where the driver's own tool is installed: they take seconds to load.
    """
    if shutil.which("nvidia-smi") is None:
        return 0
    return min(_count(python or sys.executable, backend) for backend, python in pythons.items())


@functools.cache
def _count(python: str, backend: str) -> int:
    """Return the number of GPUs that a backend sees; 0 where it cannot say. Raises MissingError."""
    try:
        ended = subprocess.run([python, "-c", COUNT[backend]], capture_output=True, text=True, timeout=120)
        if absent := MISSING.search(ended.stderr):
            raise MissingError(f"{backend}: {not_installed(absent[1], backend, python)}")
        return int(ended.stdout.split()[-1])
    except (OSError, subprocess.TimeoutExpired, ValueError, IndexError):
        return 0
