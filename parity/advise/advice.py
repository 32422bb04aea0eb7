"""Advise on one case: predict every strategy, choose the fastest that fits, and say what the choice depends on."""

import functools
from collections.abc import Iterator, Sequence

import msgspec

from parity.advise.choices import GIGA, TERA, Advice, Balanced, Choice, Device, Group, Link, Measured, by_strategy
from parity.advise.costs import Compute, Duration, balanced, duration, memory, work
from parity.advise.measure import BACKWARD, Here, Rates, single, steps
from parity.advise.model import Model
from parity.advise.strategies import spread
from parity.config.devices import baseline
from parity.config.schema import Case
from parity.runtime.resources import processors

replace = msgspec.structs.replace
USABLE = 0.9  # of a device's memory: the rest is for the framework, its kernels and the gaps between tensors
SIDES = ("torch", "keras")
NEARLY = 1.02  # steps whose lengths differ by less than this count as equal
FACTOR = 10.0  # by which what the choice depends on is changed
COUNTS = (1, 2, 4, 8, 16, 32, 64)


class Target(msgspec.Struct, frozen=True, kw_only=True):
    group: Group
    links: tuple[Link, ...]  # the link between processes and that within one process
    memory: float  # bytes of each device
    rates: Rates | None = None  # those of the device that is measured
    row: Device | None = None  # the device of the table, None if it is the measured one
    speed: float = 1.0  # how many times faster than that it computes

    @property
    def shares(self) -> bool:
        """Return whether the devices share the processors and the memory of this machine."""
        return self.group.kind == "cpu"


class Adviser:
    """Predicts the strategies of one case, from steps of `single` that it measures on this machine."""

    def __init__(self, case: Case, model: Model, here: Here) -> None:
        self.case, self.model, self.here = case, model, here
        self._alone = functools.cache(lambda side: single(case, model, side, here))  # which is measured once

    def choices(self, target: Target, sides: Sequence[str] = SIDES) -> list[Choice]:
        """Return what every strategy costs on the target's devices. Raises UsageError, BackendError, MissingError."""
        trainings = by_strategy(self.case, target.group.number)
        return [self._choice(name, each, side, target) for side in sides for name, each in trainings.items()]

    def refine(self, choices: list[Choice], target: Target, check: bool) -> None:
        """Note a more even cut for choices that cut the model into stages, where a step is shorter by it.

        With `check`, measure all choices that can be trained here, and note how far the predictions are from that.
        """
        trainings = by_strategy(self.case, target.group.number)
        for choice in choices:
            case = trainings[choice.strategy]
            if isinstance(case, Case) and not choice.why_not:
                choice.balanced = self._balanced(case, choice, target) if case.distribution.is_staged else None
                choice.measured = self._measured(case, choice) if check else None

    def duration(self, case: Case, side: str, target: Target) -> Duration:
        case = _run(case, side, target)
        ranks = case.distribution.processes(side)
        link = target.links[0 if ranks > 1 or not target.group.is_here else 1]
        slots = min(ranks, processors()) if target.shares else 0
        return duration(case, self.model, side, self._compute(side, target), link, slots)

    def _compute(self, side: str, target: Target) -> Compute:
        """Return the measured computation on the target's devices, by the roofline of both (Williams et al. 2009).

        A step takes as long as its operations, or as moving its tensors, whichever is slower; what a device does not
        reach of that here, it is assumed not to reach there either. What the host does for each pass and step stays.
        """
        compute, model, batch = self._alone(side).compute, self.model, self.case.data.batch
        if target.row and target.rates:
            flops = BACKWARD * model.cost.flops * batch
            moved = BACKWARD * (model.size() + model.cost.kept * batch)
            here = max(flops / target.rates.flops, moved / target.rates.bandwidth)
            there = max(flops / (TERA * peak(self.case, target.row)), moved / (GIGA * target.row.bandwidth))
            compute = compute._replace(flop=compute.flop * there / here)
        return compute._replace(flop=compute.flop / target.speed)

    def _choice(self, strategy: str, case: Case | str, side: str, target: Target) -> Choice:
        why_not = case if isinstance(case, str) else case.distribution.side_obstacle(side)
        choice = Choice(side=side, strategy=strategy, why_not=why_not)
        if isinstance(case, str) or why_not:
            return choice
        by_device = memory(case, self.model, side)
        predicted = self.duration(case, side, target)
        choice.micro_batches = case.accumulate
        choice.memory = max(by_device, key=sum)._asdict()
        choice.devices = list(map(sum, by_device))
        choice.sent = spread(case, self.model, side).by_kind
        choice.seconds, choice.step = predicted._asdict(), sum(predicted)
        choice.speed_up = sum(self.duration(_single(case), side, target)) / choice.step
        self._fit(choice, case, target)
        return choice

    def _balanced(self, case: Case, choice: Choice, target: Target) -> Balanced | None:
        costs = work(case, self.model, choice.side, self._compute(choice.side, target))
        sizes = balanced(costs, case.distribution.stages)
        step = sum(self.duration(replace(case, stage_blocks=tuple(sizes)), choice.side, target))
        if step * NEARLY > (choice.step or 0.0):
            return None
        fields = {"strategy": case.strategy, "accumulate": str(case.accumulate), "stage_blocks": str(sizes)}
        return Balanced(stage_blocks=sizes, step=step, fields={} if self.here.pair else fields)

    def _fit(self, choice: Choice, case: Case, target: Target) -> None:
        """Note whether the training fits; CPU devices share the memory of this machine, and are processes on it."""
        needed = max(choice.devices)
        if target.group.is_here:
            ranks = case.distribution.processes(choice.side)
            alone = self._alone(choice.side)
            # Pipelines of one process, one for each replica, are parts of one graph.
            pipelines = case.replicas if ranks == 1 and case.distribution.is_staged else 1
            beside = alone.beside + alone.added * (pipelines * case.accumulate - 1)
            tensors = sum(map(sum, memory(_run(case, choice.side, target), self.model, choice.side)))
            choice.peak = beside + (tensors if ranks == 1 and target.shares else needed)
            needed = ranks * beside + tensors if target.shares else choice.peak
        choice.fits = needed <= USABLE * target.memory

    def _measured(self, case: Case, choice: Choice) -> Measured:
        """Measure a strategy in turn with `single`, so that what else the machine does slows both alike."""
        alone, measured = steps([_single(case), case], choice.side, self.here)
        seconds = measured.seconds * self._alone(choice.side).step / alone.seconds
        return Measured(
            seconds=seconds,
            peak=measured.peak,
            seconds_error=(choice.step or 0.0) / seconds - 1,
            peak_error=(choice.peak or 0.0) / measured.peak - 1,
        )


def advise(adviser: Adviser, target: Target, check: bool) -> Advice:
    """Return the advice for the adviser's case; with `check`, measure the strategies that are predicted."""
    choices = adviser.choices(target)
    adviser.refine(choices, target, check)
    advice = Advice(
        case=adviser.case.name,
        batch=None if adviser.here.pair else adviser.case.data.batch,
        devices=str(target.group),
        link=target.links[0].source,
        memory=target.memory,
        choices=choices,
        assumed=list(assumptions(adviser, target)),
    )
    for side in SIDES:
        best = fastest([choice for choice in choices if choice.side == side])
        if best:
            advice.best[side] = best.strategy
            advice.would_change += _would_change(adviser, target, side, best.strategy)
            advice.scaling[side] = [] if target.group.is_here else list(_scaling(adviser, target, side))
    return advice


def _would_change(adviser: Adviser, target: Target, side: str, best: str) -> Iterator[str]:
    """Yield what would make another strategy the fastest that fits."""
    slow, fast = (
        tuple(replace(link, bandwidth=link.bandwidth * factor, latency=link.latency / factor) for link in target.links)
        for factor in (1 / FACTOR, FACTOR)
    )
    changes = {
        f"a link {FACTOR:.0f} times slower": replace(target, links=slow),
        f"a link {FACTOR:.0f} times faster": replace(target, links=fast),
        f"devices that compute {FACTOR:.0f} times faster": replace(target, speed=FACTOR),
        f"devices with a {FACTOR:.0f}th of the memory": replace(target, memory=target.memory / FACTOR),
    }
    for change, changed in changes.items():
        choice = fastest(adviser.choices(changed, [side]))
        if choice is None:
            yield f"{side}: with {change} nothing would fit"
        elif choice.strategy != best:
            yield f"{side}: with {change} {choice.strategy} would be the fastest that fits"


def _scaling(adviser: Adviser, target: Target, side: str) -> Iterator[tuple[int, str, float]]:
    """Yield the fastest strategy that fits on other numbers of devices, with its speed-up."""
    for number in COUNTS:
        best = fastest(adviser.choices(replace(target, group=target.group._replace(number=number)), [side]))
        if best:
            yield number, best.strategy, best.speed_up or 0.0


def assumptions(adviser: Adviser, target: Target) -> Iterator[str]:
    """Yield what the prediction rests on, one line each."""
    yield f"{USABLE:.0%} of a device's memory can be used for tensors"
    link = target.links[0]
    yield f"links between devices: {link.bandwidth:.3g} GB/s, {link.latency:.3g} µs ({link.source})"
    if target.shares:
        yield f"a process has one of {processors()} processors: the devices of one process compute one after the other"
    if row := target.row:
        yield (
            f"{target.group.kind}: {peak(adviser.case, row):g} TFLOPS, {row.bandwidth:g} GB/s ({row.source}); "
            "it reaches the part of that which this machine's device reaches of its own"
        )
        yield "what the host does for each pass takes as long there as here"
    if adviser.case.precision != "float32":
        yield f"at {adviser.case.precision}, activations have the bytes of float32: an upper bound"
    if adviser.here.pair:
        yield "a pair's blocks are the members of its numbered lists of modules; its operations run at half the peak"
    yield f"what would change the choice was tried by a factor of {FACTOR:.0f} each"


def fastest(choices: list[Choice]) -> Choice | None:
    """Return the choice with the shortest step among those that fit; of nearly equal ones the first, the simplest."""
    fitting = [(choice.step, choice) for choice in choices if choice.fits and choice.step is not None]
    shortest = min((step for step, _ in fitting), default=0.0)
    return next((choice for step, choice in fitting if step <= shortest * NEARLY), None)


def _single(case: Case) -> Case:
    return baseline(case) if case.distribution.is_distributed else case


def _run(case: Case, side: str, target: Target) -> Case:
    """Return the case as it is run: a process of PyTorch has only one CPU device, whatever number a strategy names."""
    is_alone = target.shares and side == "torch" and case.distribution.processes(side) == 1
    return replace(case, devices=1) if is_alone else case


def peak(case: Case, row: Device) -> float:
    """Return the TFLOPS of a device at the case's precision."""
    return row.bfloat16 if row.bfloat16 and case.precision == "bfloat16" else row.float32
