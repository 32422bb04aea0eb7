"""What is measured on this machine: steps of `single`, from which all predictions start, and its peak rates."""

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from parity.advise.duration import Compute
from parity.advise.memory import memory
from parity.advise.model import Model
from parity.bench.lane import Lane, Way
from parity.bench.measure import measured
from parity.config.baseline import baseline
from parity.config.devices import Kind
from parity.config.schema import Case
from parity.core.errors import BackendError
from parity.runtime.backend import Backend
from parity.runtime.environment import environment
from parity.runtime.job import Mode
from parity.trace.mapping import PairContext

MODES: dict[str, Mode] = {"torch": "eager", "keras": "graph"}  # as users of each framework commonly train
SMALLER = 4  # the second batch that is timed has this part of the samples
RATES = """
import json, time
import numpy as np
a = np.ones((1024, 1024), np.float32); b = np.ones(1 << 25, np.float32); c = np.empty_like(b)
def best(call):
    call(); times = []
    for _ in range(5):
        start = time.perf_counter(); call(); times.append(time.perf_counter() - start)
    return min(times)
print(json.dumps([2 * 1024**3 / best(lambda: a @ a), 2 * b.nbytes / best(lambda: np.copyto(c, b))]))
"""


class Rates(NamedTuple):
    """The floating-point operations and the bytes of memory that a device can do in a second."""

    flops: float
    bandwidth: float


class Single(NamedTuple):
    """A measured training on one device: its computation, the seconds of its step, and its peak memory.

    `beside`: bytes of the process that are not tensors of the training, such as the framework itself.
    """

    compute: Compute
    step: float
    peak: int
    beside: float


class Here(NamedTuple):
    """How to measure: the interpreters, the kind of devices, seconds for each measurement, and patience.

    `pair`, `trained`: for a pair what its training has to know, and its own case.
    """

    pythons: Mapping[str, str]
    kind: Kind
    seconds: float
    patience: float
    pair: PairContext | None = None
    trained: Case | None = None


class Step(NamedTuple):
    """The median of a step's measured seconds, and the peak memory of the process or GPU with the most."""

    seconds: float
    peak: int


def processors() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0))


def threads(case: Case, side: str) -> int:
    """Return the threads of each process of a training, so that all together have one for each processor."""
    return max(processors() // case.distribution.processes(side), 1)


def steps(cases: Sequence[Case], side: str, here: Here, each: int) -> list[Step]:
    """Return the measured steps of trainings that take turns, `each` with so many threads for each process.

    Raises UsageError, BackendError and MissingError.
    """
    with tempfile.TemporaryDirectory(prefix="parity-") as folder, contextlib.ExitStack() as stack:
        lanes = []
        for case, place in zip(cases, _folders(Path(folder)), strict=False):
            backend = Backend(side, here.pythons[side], place, here.kind, here.patience, each)
            lanes.append(stack.enter_context(Lane(Way(side, MODES[side]), case, backend, here.pair)))
            lanes[-1].begin()
        times = measured(lanes, here.seconds)
        return [Step(statistics.median(time.samples), time.lane.peak) for time in times]


def _folders(parent: Path) -> Iterator[Path]:
    number = 0
    while True:
        folder = parent / str(number)
        folder.mkdir()
        yield folder
        number += 1


def single(case: Case, model: Model, side: str, here: Here, each: int) -> Single:
    """Measure the training on a single device, with the case's batch and with a smaller one.

    The two times give the part that every pass costs, and the part that grows with the samples; of a pair, whose inputs
    have fixed shapes, there is one time. Raises UsageError, BackendError and MissingError.
    """
    alone = here.trained or baseline(case)
    batch = case.data.batch
    small = max(batch // SMALLER, 1)
    tried = [alone] if here.pair or small == batch else [alone, with_batch(alone, small)]
    found = steps(tried, side, here, each)
    compute = fitted(
        [found[0].seconds, found[-1].seconds], [batch, small if len(found) > 1 else 0], model.cost.flops * batch
    )
    tensors = sum(part.total for part in memory(baseline(case), model, side))
    return Single(compute, found[0].seconds, found[0].peak, found[0].peak - tensors)


def fitted(seconds: Sequence[float], batches: Sequence[int], flops: float) -> Compute:
    """Return the computation from the seconds of two batches; `flops` are the operations of the first one.

    A batch of 0 samples stands for one that was not timed. Neither part is below 0, however the times vary.
    """
    (whole, part), (many, few) = seconds, batches
    fixed = 0.0 if not few else min(max((part * many - whole * few) / (many - few), 0.0), whole)
    return Compute(fixed, (whole - fixed) / flops)


def with_batch(case: Case, batch: int) -> Case:
    """Return the same case with another number of samples in a batch."""
    return msgspec.structs.replace(case, data=msgspec.structs.replace(case.data, batch=batch))


def rates() -> Rates:
    """Measure the peak rates of this machine's processors, by a matrix product and a copy. Raises BackendError."""
    with tempfile.TemporaryDirectory(prefix="parity-") as folder:
        variables = environment(Path(folder), threads=processors())
        ran = subprocess.run([sys.executable, "-c", RATES], env=variables, capture_output=True, text=True)
    if ran.returncode:
        raise BackendError(f"the processors' rates could not be measured: {ran.stderr.strip()[-200:]}")
    return Rates(*json.loads(ran.stdout))
