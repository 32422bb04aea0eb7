"""The energy that processors and GPUs have taken, where the machine tells it: Linux's powercap (RAPL), and NVML."""

import contextlib
import functools
import importlib
from collections.abc import Callable, Iterator
from pathlib import Path

ZONES = Path("/sys/class/powercap")


def joules(zones: Path = ZONES) -> dict[str, float] | None:
    """Return what the counter of each processor and GPU stands at, in joules; None where none can be read.

    docs.kernel.org/power/powercap/powercap.html: energy_uj counts microjoules, in intel-rapl:N for a whole processor.
    """
    read = {f"GPU {number}": counter() / 1e3 for number, counter in enumerate(_gpus())}
    with contextlib.suppress(OSError):  # only the superuser may read it on many machines
        read |= {zone.name: int((zone / "energy_uj").read_text()) / 1e6 for zone in zones.glob("intel-rapl:?")}
    return read or None


def taken(before: dict[str, float] | None, after: dict[str, float] | None) -> float | None:
    """Return the joules between two readings, or None where they are not known, or a counter has started anew."""
    if before is None or after is None or any(after[zone] < joules for zone, joules in before.items()):
        return None
    return sum(after.values()) - sum(before.values())


@functools.cache
def _gpus() -> list[Callable[[], int]]:
    """Return a function for each GPU that reads its millijoules; none without nvidia-ml-py, a driver, or counters.

    docs.nvidia.com/deploy/nvml-api, nvmlDeviceGetTotalEnergyConsumption: from Volta on.
    """
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError:
        return []

    def counters() -> Iterator[Callable[[], int]]:
        nvml.nvmlInit()
        for number in range(nvml.nvmlDeviceGetCount()):
            handle = nvml.nvmlDeviceGetHandleByIndex(number)
            nvml.nvmlDeviceGetTotalEnergyConsumption(handle)  # fails now rather than in the midst of a measurement
            yield functools.partial(nvml.nvmlDeviceGetTotalEnergyConsumption, handle)

    try:
        return list(counters())
    except nvml.NVMLError:
        return []
