"""Whether a case has room: what its traces and its processes take at least, against the disk and the memory there are.

Counted is what is certain: weights, their gradients and slots of an optimizer, what modules without others within them
return. Buffers, inputs, aliases and all that is on its way come on top.
"""

import math
import os
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from parity.config.pair import Pair
from parity.config.schema import SGD, Case
from parity.config.weights import specify
from parity.core.errors import UsageError
from parity.runtime.job import RUNS
from parity.trace.survey import Survey

BYTES = {"low": 4, "high": 8, "witness": 8}  # of an element in a run
BOTH = tuple(run for runs in RUNS.values() for run in runs)  # of a comparison of both sides


class Size(NamedTuple):
    """Elements of a model: its weights, those that are trained, and what its modules return in a forward pass."""

    weights: int
    trained: int
    activations: int


def of_case(case: Case) -> Size:
    """Return the size of a built-in case, of whose activations little is known before it runs."""
    shapes = [weight.shape for weight in specify(case.model)]
    weights = _elements(shapes)
    return Size(weights, weights, case.data.batch * sum(min(shape) for shape in shapes if len(shape) > 1))


def of_pair(survey: Survey) -> Size:
    """Return the size of a half of a pair that has been surveyed."""
    trained = _elements(weight.shape for weight in survey.weights if weight.trainable)
    leaves = (seen.shape for seen in survey.outputs if seen.module in survey.arguments)
    weights = (weight.shape for weight in survey.weights if not weight.constant)  # tables are few beside them
    return Size(_elements(weights), trained, _elements(leaves))


def check(case: Case, size: Size, folder: Path, runs: Sequence[str] = BOTH) -> None:
    """Raises UsageError where the traces of these runs cannot fit into a folder, or the model into the memory."""
    disk = _traced(case, size) * sum(BYTES[run] for run in runs)
    if disk > (free := shutil.disk_usage(_existing(folder)).free):
        raise UsageError(
            f"{case.name}: its traces take at least {_gigabytes(disk)}, and {_existing(folder)} has "
            f"{_gigabytes(free)} free; name a folder on a larger disk (TMPDIR, --keep or --out), or choose fewer steps "
            "or smaller inputs"
        )
    sides = 2 if runs == BOTH else 1
    memory = sides * BYTES["high"] * (size.weights + size.trained * (1 + _slots(case)) + size.activations)
    if memory > (there := _memory()):
        raise UsageError(
            f"{case.name}: training in float64 takes at least {_gigabytes(memory)} of memory, and there are "
            f"{_gigabytes(there)}; choose smaller inputs or a smaller model"
        )


def _traced(case: Case, size: Size) -> int:
    """Return how many elements a run of a case records (parity/trace/recorder.py says of which step what)."""
    whole = min(case.steps, 2)
    gradients = (whole + max(case.steps - 2, 0) // case.every) * size.trained
    elements = size.weights + whole * size.activations + gradients
    if isinstance(case.model, Pair) and case.model.train is None:
        return elements
    evaluation = size.activations
    return elements + whole * (size.weights + _slots(case) * size.trained) + evaluation


def _slots(case: Case) -> int:
    """Return how many tensors an optimizer keeps for each weight; 0 where it is the user's own."""
    train = case.model.train if isinstance(case.model, Pair) else None
    if isinstance(case.model, Pair) and (train is None or train.torch_optimizer):
        return 0
    return bool(case.optimizer.momentum) if isinstance(case.optimizer, SGD) else 2


def _elements(shapes: Iterable[tuple[int, ...]]) -> int:
    return sum(map(math.prod, shapes))


def _existing(folder: Path) -> Path:
    """Return the folder, or the nearest around it that is there."""
    return next(each for each in (folder.absolute(), *folder.absolute().parents) if each.exists())


def _memory() -> int:
    """Return the bytes of memory of this machine, or of the container that this runs in."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        return min(machine, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    except (OSError, ValueError):  # no container, or one without a limit ("max")
        return machine


def _gigabytes(count: int) -> str:
    return f"{count / 1e9:.1f} GB"
