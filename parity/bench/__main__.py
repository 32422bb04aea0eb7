"""python -m parity.bench: time the same training in PyTorch and in Keras, side by side.

First the two sides are compared, because times of two different computations say nothing; then all trainings take
turns, a burst of steps each: op by op, with torch.compile, as a tf.function, and with XLA. The table gives the ratio of
their times, with an interval.
"""

from parity.core import process

if __name__ == "__main__":
    process.end_at_once("parity.bench")  # the imports below take long

import argparse
import contextlib
import itertools
import statistics
import sys
import tempfile
import textwrap
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import get_args

from parity import cli
from parity.bench import results
from parity.bench.lanes import NAMES, USUAL, Lane, measured
from parity.bench.report import makers, show_end, show_timed
from parity.config.devices import Devices, baseline, obstacle, parse
from parity.config.schema import Case
from parity.core.errors import BackendError, UsageError
from parity.core.groups import by_key
from parity.pairs import compare as pairs
from parity.pairs.file import PairFile
from parity.pairs.prepare import place
from parity.report import output
from parity.results import CaseResult, Report
from parity.runtime.backend import Backend
from parity.runtime.job import MODES, Mode
from parity.runtime.resources import crowded, missing, processors
from parity.runtime.runner import Runner
from parity.subjects import Plan, note_environment
from parity.subjects.run import BuiltIn
from parity.trace.manifest import Trace
from parity.trace.mapping import PairContext

SECONDS = 60.0
SAME = ("match", "subprecision", "skipped")  # verdicts after which times are comparable; skipped: by the layout alone
LONGEST = 240  # characters of the reason why a mode cannot be timed
PARTS = 8  # steps whose parts are timed
EPILOG = """Exit status: 0 everything was timed; 1 two sides are not the same computation, nothing of a case could be
timed, or something is slower than in --against; 2 wrong usage; 3 a side could not be run."""
Subject = tuple[Case, PairFile | None, Devices]  # what is timed: a case, or a pair with its file, and on which devices


def main(argv: Sequence[str], program: str = "parity.bench") -> int:
    """Run the command, called as `program`, and return its exit status."""
    args = _parse(argv, program)
    before = results.read_saved(args.against) if args.against else None
    benchmark = results.Benchmark(machine=results.this_machine(), command=cli.command_line(program, argv))
    if before:
        results.check_machine(before, benchmark, args.against)
    subjects = list(_subjects(args))  # a list, so that all flags are checked before anything runs
    console = output.Console(sys.stderr if args.json == "-" else sys.stdout)
    show = (lambda: None) if args.quiet else partial(show_end, console, benchmark)
    with output.written(args, benchmark, makers(benchmark), show=show):
        report = Report()
        for subject in subjects:
            with tempfile.TemporaryDirectory(prefix="parity-") as folder:
                timing = timed(args, *subject, Path(folder), report)
            benchmark.environment = report.environment
            benchmark.timed.append(timing)
            if not args.quiet:
                show_timed(console, timing)
        benchmark.slower = list(results.slower(before, benchmark)) if before else []
    verdicts = {timing.verdict for timing in benchmark.timed}
    return 3 if "error" in verdicts else int(bool(benchmark.slower) or any(timing.reason for timing in benchmark.timed))


def _parse(argv: Sequence[str], program: str) -> argparse.Namespace:
    parser = cli.Parser(prog=program, description=__doc__, epilog=EPILOG)
    add = parser.add_argument
    cli.add_runs(parser)
    modes = list(get_args(Mode))
    add("--mode", action="append", default=[], choices=modes, help="how steps are carried out (default: in all ways)")
    limit = f"stop measuring a case after this long, but not before six rounds (default {SECONDS:.0f})"
    add("--seconds", type=cli.seconds, default=SECONDS, help=limit)
    combined = "time every combination, e.g. --sweep batch=8,32 devices=1,2"
    add("--sweep", nargs="+", default=[], metavar="NAME=N,N", help=combined)
    output.add_flags(parser, "the times", "html")
    add("--save", dest="json", metavar="FILE", help="the same as --json, for a later --against")
    add("--against", metavar="FILE", help="fail where one side's steps are slower than in this file")
    add("--quiet", action="store_true", help="print no table")
    args = parser.parse_args(argv)
    if not args.case and not args.pair:
        parser.error("expected what to time: --case=GLOB or --pair=FILE.toml")
    output.check(args)
    return args


def _subjects(args: argparse.Namespace) -> Iterator[Subject]:
    """Yield every case and pair, with every combination that is swept. Raises UsageError."""
    swept = dict(map(_swept, args.sweep))
    if "batch" in swept and args.pair:
        raise UsageError("--sweep batch: a pair's batch is in the shapes of its inputs; sweep that of built-in cases")
    given, changes = cli.devices(args), list(args.set)
    for batch, count in itertools.product(swept.get("batch", [None]), swept.get("devices", [None])):
        on = parse(f"{given.kind}:{count}") if count else given
        args.set = [*changes, f"data.batch={batch}"] if batch else changes
        absent = missing(on, cli.pythons(args))
        for case in cli.chosen_cases(args, on):
            if reason := absent or obstacle(case) or crowded(case, on, cli.pythons(args)):
                raise UsageError(f"{case.name} on {on}: {reason}")
            yield case, None, on
        for file in cli.usable_pairs(args, on):
            yield file.case, file, on


def _swept(text: str) -> tuple[str, list[int]]:
    """Parse one NAME=N,N of --sweep. Raises UsageError."""
    name, _, numbers = text.partition("=")
    parsed = [int(number) for number in numbers.split(",") if number.isdecimal() and int(number)]
    if name not in ("batch", "devices") or len(parsed) != len(numbers.split(",")):
        raise UsageError(f"--sweep {text}: expected batch=N,N or devices=N,N with whole numbers of 1 or more")
    return name, parsed


def timed(
    args: argparse.Namespace, case: Case, file: PairFile | None, devices: Devices, folder: Path, report: Report
) -> results.Timed:
    """Return the times of a case, or of the pair of a file; none where the two sides are not the same computation.

    Raises UsageError, BackendError and MissingError where a side cannot be run as users of its framework commonly do.
    """
    compared, context = _compared(args, case, file, devices, folder / "compared", report)
    batch = None if file else case.data.batch
    result = results.Timed(case=case.name, batch=batch, devices=str(devices), verdict=compared.verdict)
    if compared.verdict not in SAME:
        is_error = compared.verdict == "error"
        result.reason = f"{'' if is_error else 'the two sides are not the same computation: '}{compared.reason}"
        return result
    with contextlib.ExitStack() as stack:
        lanes, result.lanes = [], []
        for side, mode, own in _trainings(args, case):
            row = results.LaneTimes(name=NAMES[side, mode], side=side, mode=mode, strategy=own.strategy)
            row.is_alone = own is not case
            row.sent = _sent(compared, side) if own is case else {}
            result.lanes.append(row)
            apart = folder / f"{side}-{mode}-{own.strategy}"
            apart.mkdir()
            # Its processes together have as many threads as this one may use processors.
            threads = max(processors() // own.distribution.processes(side), 1)
            backend = Backend(side, cli.pythons(args)[side], apart, devices.kind, args.timeout, threads)
            lane = stack.enter_context(Lane(mode, own, backend, context))
            try:
                lane.begin()
                lanes.append((lane, row))
            except (UsageError, BackendError) as error:
                if USUAL[side] == mode:
                    raise
                row.why_not = textwrap.shorten(str(error), LONGEST, placeholder=" ...")
                backend.close()
        if lanes:
            _time(lanes, args.seconds, batch)
        else:
            why_not = next((row.why_not for row in result.lanes), "these modes are none of this strategy's")
            result.reason = f"nothing could be timed: {why_not}"
    _speed_up(result.lanes, case)
    return result


def _compared(
    args: argparse.Namespace, case: Case, file: PairFile | None, devices: Devices, folder: Path, report: Report
) -> tuple[CaseResult, PairContext | None]:
    """Return what the comparison that goes first has found, and what the trainings of a pair have to know."""
    folder.mkdir(parents=True)
    with Runner.of(cli.pythons(args), folder, devices.kind, args.timeout) as runner:
        if file is None:
            return BuiltIn(case).compared(runner.sides, Plan([case], folder, None), report), None
        result = pairs.compared(file, runner.sides, folder / case.name, varied=False)
    if result.verdict == "error":
        return result, None
    traces = [Trace(folder / case.name / side) for side in ("torch", "keras")]
    note_environment(traces, report)
    return result, traces[1].manifest.context(file.search, str(place(folder / case.name, "torch")))


def _trainings(args: argparse.Namespace, case: Case) -> Iterator[tuple[str, Mode, Case]]:
    """Yield what is timed: the case in all modes, and the same training on a single device in the usual one."""
    sides = [side for side in cli.pythons(args) if not case.distribution.side_obstacle(side)]
    able = [(side, mode) for side in sides for mode in MODES[side] if mode in (args.mode or get_args(Mode))]
    yield from ((side, mode, case) for side, mode in able)
    if case.distribution.is_distributed:
        alone = baseline(case)
        yield from ((side, mode, alone) for side, mode in able if mode == USUAL[side])


def _time(lanes: Sequence[tuple[Lane, results.LaneTimes]], seconds: float, batch: int | None) -> None:
    """Time the lanes that have begun, and note in their rows what was measured."""
    for (lane, row), ratio in zip(lanes, measured([lane for lane, _ in lanes], seconds), strict=True):
        row.samples, row.step = lane.samples, results.interval(lane.samples)
        row.quartiles = results.quartiles(lane.samples)
        row.per_second = batch / row.step.middle if batch else None
        row.ratio, row.peak, row.start, row.first = ratio, lane.peak, lane.start, lane.first
        row.joules = statistics.median(lane.joules) if lane.joules else None
        lane.burst(PARTS, parts=True)
        # In a compiled step the parts cannot be told apart.
        row.parts = lane.parts[0] if lane.parts and lane.parts[0].forward is not None else None


def _speed_up(rows: Sequence[results.LaneTimes], case: Case) -> None:
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


if __name__ == "__main__":
    cli.end("parity.bench", main)
