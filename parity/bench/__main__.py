"""python -m parity.bench: time the same training in PyTorch and in Keras, side by side.

First the two sides are compared, because times of two different computations say nothing; then all trainings take
turns, a burst of steps each: op by op, with torch.compile, as a tf.function, and with XLA. The table gives the ratio of
their times, with an interval.
"""

from parity.core import process

if __name__ == "__main__":
    process.end_at_once("parity.bench")  # the imports below take long

import argparse
import itertools
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import get_args

from parity import cli
from parity.bench.lanes import Way
from parity.bench.report import Printed, makers
from parity.bench.results import Benchmark, Timed, check_machine, read_saved, slower, this_machine
from parity.bench.run import Settings, timed
from parity.config.devices import Devices, obstacle, parse
from parity.config.schema import Case
from parity.core.errors import UsageError
from parity.pairs.file import PairFile
from parity.report import output
from parity.results import Report
from parity.runtime.job import MODES, Mode
from parity.runtime.resources import crowded, missing

SECONDS = 60.0
SWEPT = ("batch", "devices")
EPILOG = """Exit status: 0 everything was timed; 1 two sides are not the same computation, nothing of a case could be
timed, or something is slower than in --against; 2 wrong usage; 3 a side could not be run."""
Subject = tuple[Case, PairFile | None, Devices]  # what is timed: a case, or a pair with its file, and on which devices


def main(argv: Sequence[str], program: str = "parity.bench") -> int:
    """Run the command, called as `program`, and return its exit status."""
    args = _parse(argv, program)
    before = read_saved(args.against) if args.against else None
    benchmark = Benchmark(machine=this_machine(), command=cli.command_line(program, argv))
    if before:
        check_machine(before, benchmark, args.against)
    subjects = list(_subjects(args))  # a list, so that all flags are checked before anything runs
    printed = Printed(sys.stderr if args.json == "-" else sys.stdout)
    with output.written(args, benchmark, makers(benchmark)):
        for found in _timed(args, subjects, benchmark):
            benchmark.timed.append(found)
            if not args.quiet:
                printed.add(found)
        benchmark.slower = list(slower(before, benchmark)) if before else []
    if not args.quiet:
        printed.end(benchmark)
    verdicts = {found.verdict for found in benchmark.timed}
    return 3 if "error" in verdicts else int(bool(benchmark.slower) or any(found.reason for found in benchmark.timed))


def _timed(args: argparse.Namespace, subjects: Sequence[Subject], benchmark: Benchmark) -> Iterator[Timed]:
    pythons, report = cli.pythons(args), Report()
    ways = [Way(side, mode) for side in pythons for mode in MODES[side] if mode in (args.mode or get_args(Mode))]
    for case, file, devices in subjects:
        settings = Settings(devices, pythons, ways, args.seconds, args.timeout)
        with tempfile.TemporaryDirectory(prefix="parity-") as folder:
            yield timed(case, file, settings, Path(folder), report)
        benchmark.environment = report.environment


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
    if name not in SWEPT or len(parsed) != len(numbers.split(",")):
        raise UsageError(f"--sweep {text}: expected batch=N,N or devices=N,N with whole numbers of 1 or more")
    return name, parsed


if __name__ == "__main__":
    cli.end("parity.bench", main)
