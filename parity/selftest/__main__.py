"""Plant faults and see whether they are caught, placed and named, and whether clean runs raise no alarm.

Every fault of the catalogue is planted on its side, run like any other case, and compared with the other side's clean
run. The table also shows what other checks say about the outputs of the same runs.
"""

from parity.core import process

if __name__ == "__main__":
    process.end_at_once("parity.selftest")  # the imports below take long

import argparse
import contextlib
import fnmatch
import shutil
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Generator, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from parity import cli
from parity.config.schema import Case
from parity.core.errors import BackendError, UsageError, nearest
from parity.core.groups import grouped
from parity.diagnose.diagnosis import explained
from parity.report import output
from parity.report.output import progress
from parity.results import CaseResult
from parity.runtime.job import RUNS, Answer, Job
from parity.runtime.runner import Runner, Side, begun, ended, in_order
from parity.selftest import report
from parity.selftest.catalogue import ALL, resolve
from parity.selftest.outcome import Fault, Outcome, ask_other_checks, outputs
from parity.selftest.report import Selftest
from parity.trace.manifest import Trace

EPILOG = """Status: 0 all faults caught and placed, nine of ten named, no false alarm; 1 otherwise; 2 usage error;
3 a backend failed."""
AHEAD = 3  # outcomes that are begun, for each job that runs at the same time
CLEAN = 30  # random clean runs by default


class Recording(NamedTuple):
    """One backend's run of the case of that number; `fault` is the name of the planted fault, "" for a clean run."""

    case: int
    backend: str
    fault: str


def main(argv: Sequence[str], program: str = "parity.selftest") -> int:
    """Run the self-test, called as `program`, and return the exit status."""
    parser = cli.Parser(prog=program, description=__doc__, epilog=EPILOG)
    add = parser.add_argument
    add("--fault", action="append", default=[], metavar="GLOB", help="faults to plant, e.g. 'keras:adam*' (repeatable)")
    add("--clean", type=cli.whole, default=CLEAN, metavar="N", help=f"random clean runs (default {CLEAN})")
    add("--seed", type=cli.whole, default=0, help="seed of the random clean runs (default 0)")
    cli.add_pythons(parser)
    cli.add_timeout(parser)
    output.add_flags(parser, "the outcomes", "html", "junit")
    args = parser.parse_args(argv)
    output.check(args)
    faults, clean = _chosen(args.fault), _clean(args.clean, args.seed)
    table = sys.stderr if args.json == "-" else sys.stdout
    outcomes: list[Outcome] = []
    tested = Selftest(outcomes, cli.command_line(program, argv))
    try:
        _collect(args, faults, clean, outcomes)
        asked = ask_other_checks([outcome.outputs for outcome in outcomes], args.torch_python)
        outcomes[:] = (outcome._replace(objections=said) for outcome, said in zip(outcomes, asked, strict=True))
    except BaseException as error:  # by a signal too: the outcomes so far are not lost
        _write(args, tested._replace(error=str(error) or type(error).__name__))
        if isinstance(error, BackendError) and outcomes:
            report.show(tested, table)
        raise
    try:
        _write(args, tested)
    finally:
        report.show(tested, table)
    return tested.status


def _collect(args: argparse.Namespace, faults: list[Fault], clean: list[Case], outcomes: list[Outcome]) -> None:
    """Run the faults and the clean cases, and add each outcome as soon as it is known."""
    with tempfile.TemporaryDirectory(prefix="parity-") as scratch:
        recordings = _Recordings(faults, clean, Path(scratch))
        total = len(faults) + len(recordings.cases)
        with (
            Runner.of(cli.pythons(args), Path(scratch), patience=args.timeout) as runner,
            contextlib.closing(recordings.outcomes(runner)) as outcomes_so_far,
            progress("testing", total, "run", runner.doing) as advance,
        ):
            for outcome in outcomes_so_far:
                outcomes.append(outcome)  # one at a time: those that are known are kept where the run is stopped
                advance()


def _write(args: argparse.Namespace, tested: Selftest) -> None:
    """Write all files that the flags name. Raises UsageError."""
    output.write(args, report.document(tested), report.makers(tested))


def _chosen(patterns: Sequence[str]) -> list[Fault]:
    """Return the faults whose `side:name` any of the globs matches. Raises UsageError for a glob that matches none."""
    names = {f"{fault.side}:{fault.name}": fault for fault in ALL}
    for pattern in patterns:
        if not fnmatch.filter(names, pattern):
            raise UsageError(
                f"no fault matches {pattern!r}{nearest(pattern, names)}; there are {len(names)} faults, "
                "named torch:NAME or keras:NAME"
            )
    matched = {name for pattern in patterns or ["*"] for name in fnmatch.filter(names, pattern)}
    return [fault for name, fault in names.items() if name in matched]


def _clean(count: int, seed: int) -> list[Case]:
    """Return random cases. Raises UsageError if hypothesis is not installed."""
    if not count:
        return []
    try:
        from parity.selftest.clean import random_cases
    except ModuleNotFoundError as error:
        raise UsageError(f"--clean={count}: needs {error.name}; pip install '.[test]', or use --clean=0") from None
    return random_cases(count, seed)


class _Recordings:
    """The recordings that are needed, and the outcomes that follow from them.

    `cases` holds first those that faults are planted on, then the clean ones; `faults` holds the faults of each case.
    """

    def __init__(self, faults: Sequence[Fault], clean: Sequence[Case], folder: Path) -> None:
        self.folder = folder
        by_case = grouped(faults, lambda fault: msgspec.json.encode(resolve(fault)))
        self.cases = [*(resolve(faults_of_case[0]) for faults_of_case in by_case.values()), *clean]
        self.faults = [*by_case.values(), *([] for _ in clean)]
        self._lock = threading.Lock()
        self._answers: dict[Recording, Future[Answer]] = {}

    def outcomes(self, runner: Runner) -> Generator[Outcome, None, None]:
        """Yield the outcome of each case without a fault and of each fault, as soon as both sides are recorded."""
        sides = {side.name: side for side in runner.sides}
        entries = [(case, fault) for case, faults in enumerate(self.faults) for fault in (None, *faults)]

        def outcome(entry: tuple[int, Fault | None]) -> Outcome:
            recordings = _sides(*entry)
            answers = [self._answer(recording, sides[recording.backend]) for recording in recordings]
            return self._outcome(*entry, [ended(answer) for answer in answers])

        left = Counter(case for case, _ in entries)
        for (case, _), result in zip(entries, in_order(entries, outcome, AHEAD * runner.at_once), strict=True):
            yield result
            left[case] -= 1
            if not left[case]:
                shutil.rmtree(self.folder / str(case), ignore_errors=True)

    def _answer(self, recording: Recording, side: Side) -> "Future[Answer]":
        """Return the answer to a recording, which begins when it is first asked for."""
        with self._lock:
            if recording not in self._answers:
                number, backend, fault = recording
                folder = str(self._folder(recording))
                job = Job(case=self.cases[number], runs=RUNS[backend], folder=folder, fault=fault)
                self._answers[recording] = begun(partial(side.do, job))
            return self._answers[recording]

    def _folder(self, recording: Recording) -> Path:
        return self.folder / str(recording.case) / recording.backend / (recording.fault or "clean")

    def _outcome(self, number: int, fault: Fault | None, answers: Sequence[Answer]) -> Outcome:
        case = self.cases[number]
        if failed := [answer.message for answer in answers if answer.status != "done"]:
            return Outcome(case, fault, CaseResult(case=case.name, verdict="error", reason=failed[0]), [])
        torch, keras = (Trace(self._folder(side)) for side in _sides(number, fault))
        result = explained(torch, keras)
        result.details = None  # of hundreds of runs, they would fill the memory
        return Outcome(case, fault, result, outputs(torch, keras))


def _sides(case: int, fault: Fault | None) -> list[Recording]:
    """Return the recordings of both sides that are compared; at most one of them has the fault."""
    return [Recording(case, side, fault.name if fault and fault.side == side else "") for side in ("torch", "keras")]


if __name__ == "__main__":
    cli.end("parity.selftest", main)
