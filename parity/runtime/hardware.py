"""Which devices this machine has that both backends see."""

import shutil
import subprocess
import sys

from parity.config.devices import Devices

WITHOUT_GPU = Devices("cpu", 2)
COUNT = {
    "torch": "import torch; print(torch.cuda.device_count())",
    "keras": "import tensorflow as tf; print(len(tf.config.list_physical_devices('GPU')))",
}


def available(pythons: dict[str, str]) -> Devices:
    """The GPUs that every backend sees, or else two CPU devices.

    `pythons`: each backend's interpreter, "" for this one. The frameworks are only asked where the
    driver's own tool is installed: they take seconds to load.
    """
    if shutil.which("nvidia-smi") is None:
        return WITHOUT_GPU
    seen = min(_count(python or sys.executable, COUNT[backend]) for backend, python in pythons.items())
    return Devices("gpu", seen) if seen else WITHOUT_GPU


def _count(python: str, code: str) -> int:
    """What a program prints; a framework that is not there sees no GPU."""
    try:
        ended = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=120)
        return int(ended.stdout.split()[-1])
    except (OSError, subprocess.TimeoutExpired, ValueError, IndexError):
        return 0
