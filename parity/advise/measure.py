"""What is measured on this machine: steps of `single`, from which all predictions start, and its peak rates."""

import contextlib
import math
import statistics
import tempfile
import timeit
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
from threadpoolctl import threadpool_limits

from parity.advise.choices import GIGA, MICRO, Link
from parity.advise.costs import Compute, memory
from parity.advise.model import FLOAT, Model
from parity.bench.lanes import USUAL, Lane, measured
from parity.config import cases
from parity.config.devices import Kind, baseline
from parity.config.schema import Case
from parity.config.weights import specify
from parity.runtime.backend import Backend
from parity.runtime.resources import processors
from parity.trace.mapping import PairContext

BACKWARD = 3  # a forward and a backward pass have so many times the operations of a forward pass
USUAL_RATE = 0.5  # of a processor's peak is what trainings reach
SENT_CASE, MESSAGES = "two_linear/send_recv", 2  # an activation there, and its gradient back
REDUCED_CASES = ("two_linear/all_reduce", "linear_stack/all_reduce")
SHORTEST = 1e-6  # seconds that communication takes at least
FASTEST = 100.0  # GB/s that a link within a machine has at most
SMALLER = 4  # the second batch that is timed has this part of the samples, the third so many micro-batches
ROUNDS = 6  # of which the fastest tells a peak rate


class Rates(NamedTuple):
    """The floating-point operations and the bytes of memory that a device can do in a second."""

    flops: float
    bandwidth: float


class Single(NamedTuple):
    """A measured training on one device: its computation, the seconds of its step, and its memory."""

    compute: Compute
    step: float
    beside: float  # bytes of the process that are not tensors of the training, such as the framework itself
    added: float = 0.0  # those that each further micro-batch adds, such as its part of a graph


class Here(NamedTuple):
    """How to measure: the interpreters, the kind of devices, seconds for each measurement, and patience."""

    pythons: Mapping[str, str]
    kind: Kind
    seconds: float
    patience: float
    pair: PairContext | None = None  # for a pair, what its training has to know
    trained: Case | None = None  # and its own case


class Step(NamedTuple):
    """A step's measured seconds, and the peak memory of the process or GPU with the most."""

    seconds: float  # those of the first training, times the median of the ratios to it in the same rounds
    peak: int


def steps(trainings: Sequence[Case], side: str, here: Here) -> list[Step]:
    """Return the measured steps of trainings that take turns, so that what else the machine does slows all alike.

    Each process has one thread: a CPU device is one processor. Raises UsageError, BackendError and MissingError.
    """
    with tempfile.TemporaryDirectory(prefix="parity-") as folder, contextlib.ExitStack() as stack:
        lanes: list[Lane] = []
        for case in trainings:
            own = Path(folder) / str(len(lanes))
            own.mkdir()
            backend = Backend(side, here.pythons[side], own, here.kind, here.patience)
            lanes.append(stack.enter_context(Lane(USUAL[side], case, backend, here.pair)))
            lanes[-1].begin()
        ratios = measured(lanes, here.seconds)
        first = statistics.median(lanes[0].samples)
        return [Step(first * ratio.middle, lane.peak) for ratio, lane in zip(ratios, lanes, strict=True)]


def single(case: Case, model: Model, side: str, here: Here) -> Single:
    """Measure the training on a single device: with the case's batch, a smaller one, and the batch in micro-batches.

    The times give what grows with the samples, what every pass costs, and what a step costs once. The inputs of a pair
    have fixed shapes: there the first part is what the operations take at half of the processor's peak rate, and the
    rest is each pass's. Raises UsageError, BackendError and MissingError.
    """
    alone = here.trained or baseline(case)
    flops = model.cost.flops * case.data.batch
    small = max(case.data.batch // SMALLER, 1)
    if here.trained or small == case.data.batch:
        (whole,) = steps([alone], side, here)
        compute = fitted(whole.seconds, BACKWARD * flops / (USUAL_RATE * rates().flops), whole.seconds, flops)
        return Single(compute, whole.seconds, _beside(whole, baseline(case), model, side))
    passes = max(number for number in range(1, SMALLER + 1) if case.data.batch % number == 0)
    parts = msgspec.structs.replace(alone, accumulate=passes)
    whole, part, split = steps([alone, with_batch(alone, small), parts], side, here)
    grown = (whole.seconds - part.seconds) / (1 - small / case.data.batch)
    further = (split.seconds - whole.seconds) / (passes - 1) if passes > 1 else whole.seconds
    beside = _beside(whole, alone, model, side)
    added = max(_beside(split, parts, model, side) - beside, 0.0) / max(passes - 1, 1)
    return Single(fitted(whole.seconds, grown, further, flops), whole.seconds, beside, added)


def _beside(step: Step, case: Case, model: Model, side: str) -> float:
    """Return the bytes of a measured training on a single device that are not its tensors."""
    return step.peak - sum(map(sum, memory(case, model, side)))


def fitted(step: float, grown: float, further: float, flops: float) -> Compute:
    """Return the computation of a step of so many seconds and operations.

    `grown`: the seconds that grow with the samples; `further`: those by which another pass with the same samples
    lengthens it. However the times vary, no part is below 0.
    """
    grown = min(max(grown, 0.0), step)
    fixed = min(max(further, 0.0), step - grown)
    return Compute(max(step - grown - fixed, 0.0), fixed, grown / flops)


def measured_link(devices: int, here: Here) -> Link:
    """Measure the link between PyTorch's processes on this machine, by messages and by all-reduces.

    What a step of send_recv takes more than one on a single device are two messages of the smallest model. What a step
    of all_reduce takes more than one with as many samples is communication: of the smallest model the messages of a
    ring for each weight and what a collective takes beside them, of the stack of linear layers the bytes as well.
    Raises UsageError, BackendError and MissingError.
    """
    sent = cases.resolve(SENT_CASE, {"devices": 2})
    alone, passed_on = steps([baseline(sent), sent], "torch", here)
    latency = max(passed_on.seconds - alone.seconds, SHORTEST) / MESSAGES
    (small, few, _), (large, many, size) = (_reduced(name, devices, here) for name in REDUCED_CASES)
    hops = 2 * (devices - 1)
    call = max(small / few, hops * latency)
    passed = size * hops / devices
    bandwidth = passed / max(large - many * call, passed / (GIGA * FASTEST))
    return Link(
        bandwidth=bandwidth / GIGA,
        latency=latency / MICRO,
        collective=(call - hops * latency) / MICRO,
        source="measured here, by send, recv and all_reduce over gloo",
    )


def _reduced(name: str, devices: int, here: Here) -> tuple[float, int, int]:
    """Return the seconds of communication in a case's step, the number of weights that are reduced, and their bytes."""
    case = cases.resolve(name, {"devices": devices})
    alone, reduced = steps([with_batch(baseline(case), case.data.batch // devices), case], "torch", here)
    crowd = max(devices / processors(), 1.0) if here.kind == "cpu" else 1.0
    weights = [math.prod(weight.shape) for weight in specify(case.model)]
    return max(reduced.seconds - alone.seconds * crowd, SHORTEST), len(weights), FLOAT * sum(weights)


def with_batch(case: Case, batch: int) -> Case:
    return msgspec.structs.replace(case, data=msgspec.structs.replace(case.data, batch=batch))


def rates() -> Rates:
    """Measure the peak rates of one of this machine's processors, by a matrix product and a copy."""
    factor, source = np.ones((1024, 1024), np.float32), np.ones(1 << 25, np.float32)
    target = np.empty_like(source)
    with threadpool_limits(1, "blas"):
        multiplied = min(timeit.repeat(lambda: factor @ factor, number=1, repeat=ROUNDS))
        copied = min(timeit.repeat(lambda: np.copyto(target, source), number=1, repeat=ROUNDS))
    return Rates(2 * 1024**3 / multiplied, 2 * source.nbytes / copied)
