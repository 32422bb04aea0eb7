"""What this machine has for a case: devices that both backends can use, and room for the traces and the processes.

The estimates of room are lower bounds: they count weights, gradients, optimizer slots and the activations of leaf
modules, but not buffers, inputs, aliases or temporary tensors.
"""

import functools
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from rich.filesize import decimal

from parity.config.devices import Devices
from parity.config.pair import Pair
from parity.config.schema import SGD, Case
from parity.config.weights import specify
from parity.core import wording
from parity.core.errors import MissingError, UsageError
from parity.runtime.environment import MISSING, not_installed
from parity.runtime.job import RUNS
from parity.runtime.survey import Survey

WITHOUT_GPU = Devices("cpu", 2)
COUNT = {
    "torch": "import torch; print(torch.cuda.device_count())",
    "keras": "import tensorflow as tf; print(len(tf.config.list_physical_devices('GPU')))",
}


def missing(devices: Devices, pythons: dict[str, str]) -> str:
    """Return why nothing can run on these devices, or "": fewer GPUs than requested are shared. Raises MissingError."""
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
    needs = f"{case.strategy} needs {wording.count(devices.number, 'GPU')}, this machine has {count}"
    return needs if count < devices.number else ""


def available(pythons: dict[str, str]) -> Devices:
    """Return the GPUs that all backends can use, by their interpreters ("": this one), or else two CPU devices."""
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


BYTES = {"low": 4, "high": 8, "witness": 8}  # per element of a tensor, by run
MOST = 0.5  # the part of the memory that both sides take together at most, by the lower bounds
BOTH = tuple(run for runs in RUNS.values() for run in runs)  # the runs of both sides that a comparison records


class Size(NamedTuple):
    """The elements of a model: of all its weights, of its trained weights, and of a forward pass's activations."""

    weights: int
    trained: int
    activations: int


def of_case(case: Case) -> Size:
    """Return the size of a built-in case; its activations are only bounded from below by the widths of its weights."""
    shapes = [weight.shape for weight in specify(case.model)]
    weights = _elements(shapes)
    return Size(weights, weights, case.data.batch * sum(min(shape) for shape in shapes if len(shape) > 1))


def of_pair(survey: Survey) -> Size:
    """Return the size of one side's model of a pair, from its survey."""
    trained = _elements(weight.shape for weight in survey.weights if weight.trainable)
    leaves = (output.shape for output in survey.outputs if output.module in survey.arguments)
    weights = (weight.shape for weight in survey.weights if not weight.constant)
    return Size(_elements(weights), trained, _elements(leaves))


def check(case: Case, size: Size, folder: Path, runs: Sequence[str] = BOTH, summarises: bool = False) -> None:
    """Raise UsageError if these runs do not fit: their traces (not summaries) into the folder, training into memory."""
    disk = 0 if summarises else _traced(case, size) * sum(BYTES[run] for run in runs)
    existing = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    if disk > (free := shutil.disk_usage(existing).free):
        raise UsageError(
            f"{case.name}: its traces take at least {decimal(disk)}, and {existing} has {decimal(free)} free; name a "
            "folder on a larger disk (TMPDIR, --keep or --out), or choose fewer steps or smaller inputs"
        )
    sides = 2 if runs == BOTH and not in_turn(case, size) else 1
    if (needed := sides * _needed(case, size)) > (available := memory()):
        raise UsageError(
            f"{case.name}: training in float64 takes at least {decimal(needed)} of memory, but this machine has "
            f"only {decimal(available)}; choose smaller inputs or a smaller model"
        )


def in_turn(case: Case, size: Size) -> bool:
    """Return whether a pair's sides are run one after the other, as both at once would take most of the memory."""
    return isinstance(case.model, Pair) and 2 * _needed(case, size) > MOST * memory()


def _needed(case: Case, size: Size) -> int:
    """Return the bytes of memory that a side takes at least."""
    of_training = size.trained * (_differentiates(case) + slots(case))
    return BYTES["high"] * (size.weights + of_training + size.activations)


def _traced(case: Case, size: Size) -> int:
    """Return how many elements a run of a case records (parity/trace/recorder.py describes what each step records)."""
    whole = min(case.steps, 2)
    gradients = (whole + max(case.steps - 2, 0) // case.every) * size.trained * _differentiates(case)
    elements = size.weights + whole * size.activations + gradients
    evaluated = whole * (size.weights + slots(case) * size.trained) + size.activations
    return elements + (evaluated if case.model.trains else 0)


def _differentiates(case: Case) -> bool:
    """Return whether gradients are computed: of a pair that says backward = false there are none."""
    return not isinstance(case.model, Pair) or case.model.backward


def slots(case: Case) -> int:
    """Return how many tensors an optimizer keeps for each weight; 0 for a user's own, which is unknown."""
    train = case.model.train if isinstance(case.model, Pair) else None
    if isinstance(case.model, Pair) and (train is None or train.torch_optimizer):
        return 0
    return bool(case.optimizer.momentum) if isinstance(case.optimizer, SGD) else 2


def _elements(shapes: Iterable[tuple[int, ...]]) -> int:
    return sum(map(math.prod, shapes))


def processors() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0))


def memory() -> int:
    """Return the bytes of memory that this machine, or the container, has."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        return min(machine, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    except (OSError, ValueError):  # not in a container, or in one without a limit ("max")
        return machine
