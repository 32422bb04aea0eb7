"""Time one case or pair: compare the two sides first, then let all their trainings take turns."""

import contextlib
import statistics
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from parity.bench.lanes import USUAL, Lane, Way, measured
from parity.bench.results import LaneTimes, Timed, interval, quartiles
from parity.config.devices import Devices, baseline
from parity.config.schema import Case
from parity.core.errors import BackendError, UsageError
from parity.core.groups import by_key
from parity.pairs import compare as pairs
from parity.pairs.file import PairFile
from parity.pairs.prepare import place
from parity.results import CaseResult, Report
from parity.runtime.backend import Backend
from parity.runtime.plan import Plan
from parity.runtime.resources import processors
from parity.runtime.runner import Runner
from parity.subjects.run import BuiltIn
from parity.subjects.subject import note_environment
from parity.trace.manifest import Trace
from parity.trace.mapping import PairContext

SAME = ("match", "subprecision", "skipped")  # verdicts after which times are comparable; skipped: by the layout alone
LONGEST = 240  # characters of the reason why a mode cannot be timed
PARTS = 8  # steps whose parts are timed


class Settings(NamedTuple):
    """How to time: on which devices, by which interpreters, in which modes, at most how many seconds for each case."""

    devices: Devices
    pythons: Mapping[str, str]
    modes: Sequence[Way]
    seconds: float
    patience: float


def timed(case: Case, file: PairFile | None, settings: Settings, folder: Path, report: Report) -> Timed:
    """Return the times of a case, or of the pair of a file; none where the two sides are not the same computation.

    Raises UsageError, BackendError and MissingError where a side cannot be run as users of its framework commonly do.
    """
    compared, context = _compared(case, file, settings, folder / "compared", report)
    batch = None if file else case.data.batch
    result = Timed(case=case.name, batch=batch, devices=str(settings.devices), verdict=compared.verdict)
    if compared.verdict not in SAME:
        is_error = compared.verdict == "error"
        result.reason = f"{'' if is_error else 'the two sides are not the same computation: '}{compared.reason}"
        return result
    with contextlib.ExitStack() as stack:
        lanes, result.lanes = [], []
        for way, own in _trainings(case, settings):
            row = LaneTimes(name=way.name, side=way.side, mode=way.mode, strategy=own.strategy)
            row.is_alone = own is not case
            row.sent = _sent(compared, way.side) if own is case else {}
            result.lanes.append(row)
            apart = folder / f"{way.side}-{way.mode}-{own.strategy}"
            apart.mkdir()
            # Its processes together have as many threads as this one may use processors.
            threads = max(processors() // own.distribution.processes(way.side), 1)
            devices, python = settings.devices, settings.pythons[way.side]
            backend = Backend(way.side, python, apart, devices.kind, settings.patience, threads)
            lane = stack.enter_context(Lane(way, own, backend, context))
            try:
                lane.begin()
                lanes.append((lane, row))
            except (UsageError, BackendError) as error:
                if USUAL[way.side] == way.mode:
                    raise
                row.why_not = textwrap.shorten(str(error), LONGEST, placeholder=" ...")
                backend.close()
        if lanes:
            _time(lanes, settings.seconds, batch)
        else:
            why_not = next((row.why_not for row in result.lanes), "these modes are none of this strategy's")
            result.reason = f"nothing could be timed: {why_not}"
    _speed_up(result.lanes, case)
    return result


def _compared(
    case: Case, file: PairFile | None, settings: Settings, folder: Path, report: Report
) -> tuple[CaseResult, PairContext | None]:
    """Return what the comparison that goes first has found, and what the trainings of a pair have to know."""
    folder.mkdir(parents=True)
    with Runner.of(settings.pythons, folder, settings.devices.kind, settings.patience) as runner:
        if file is None:
            return BuiltIn(case).compared(runner.sides, Plan([case], folder, None), report), None
        result = pairs.compared(file, runner.sides, folder / case.name, varied=False)
    if result.verdict == "error":
        return result, None
    note_environment([Trace(folder / case.name / side) for side in ("torch", "keras")], report)
    return result, recorded_context(file, folder / case.name)


def recorded_context(file: PairFile, folder: Path) -> PairContext:
    """Return what the trainings of a pair have to know, from its traces in a folder."""
    ported = Trace(folder / "keras").manifest
    survey = place(folder, "torch")
    return PairContext(search=file.search, survey=survey, mapping=ported.mapping, matching=ported.matching)


def _trainings(case: Case, settings: Settings) -> Iterator[tuple[Way, Case]]:
    """Yield what is timed: the case in all modes, and the same training on a single device in the usual one."""
    able = [way for way in settings.modes if not case.distribution.side_obstacle(way.side)]
    yield from ((way, case) for way in able)
    if case.distribution.is_distributed:
        alone = baseline(case)
        yield from ((way, alone) for way in able if way.mode == USUAL[way.side])


def _time(lanes: Sequence[tuple[Lane, LaneTimes]], seconds: float, batch: int | None) -> None:
    """Time the lanes that have begun, and note in their rows what was measured."""
    for (lane, row), ratio in zip(lanes, measured([lane for lane, _ in lanes], seconds), strict=True):
        row.step, row.quartiles, row.samples = interval(lane.samples), quartiles(lane.samples), lane.samples
        row.per_second = batch / row.step.middle if batch else None
        row.ratio, row.peak, row.start, row.first = ratio, lane.peak, lane.start, lane.first
        row.joules = statistics.median(lane.joules) if lane.joules else None
        lane.burst(PARTS, parts=True)
        # In a compiled step the parts cannot be told apart.
        row.parts = lane.parts[0] if lane.parts and lane.parts[0].forward is not None else None


def _speed_up(rows: Sequence[LaneTimes], case: Case) -> None:
    """Note how much faster each row is than its side's training on a single device."""
    alone = {row.side: row.step.middle for row in rows if row.is_alone and row.step}
    for row in rows:
        if not row.is_alone and row.mode == USUAL[row.side] and row.step and row.side in alone:
            row.speed_up = alone[row.side] / row.step.middle
            row.efficiency = row.speed_up / case.distribution.used_devices


def _sent(result: CaseResult, side: str) -> dict[str, int]:
    """Return the bytes of a side's copies between devices and of its collectives in a step, by what they are."""
    layout = result.layout.sides.get(side) if result.layout else None
    if layout is None:
        return {}
    copies = by_key((f"{transfer.what} copies", transfer.bytes) for transfer in layout.transfers)
    return {what: sum(sizes) for what, sizes in copies.items()} | layout.collectives
