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
from collections import Counter
from collections.abc import Generator, Sequence
from functools import partial
from pathlib import Path

import msgspec

from parity import cli
from parity.config.schema import Case
from parity.core.errors import BackendError, UsageError, nearest
from parity.core.groups import grouped
from parity.diagnose.diagnosis import examined
from parity.report import output
from parity.report.output import progress
from parity.results import CaseResult
from parity.runtime.runner import Runner, Side, in_order
from parity.selftest import report
from parity.selftest.catalogue import ALL, resolve
from parity.selftest.outcome import Fault, Outcome, ask_other_checks, outputs
from parity.selftest.report import Selftest
from parity.subjects import Task
from parity.trace.manifest import Trace

EPILOG = """Status: 0 all faults caught and placed, nine of ten named, no false alarm; 1 otherwise; 2 usage error;
3 a backend failed."""
AHEAD = 3  # outcomes that are begun, for each job that runs at the same time
CLEAN = 30  # random clean runs by default


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
    show = partial(report.show, tested, table)
    try:
        with output.written(args, tested, report.makers(tested), partial(report.document, tested), show=show):
            _collect(args, faults, clean, outcomes)
            asked = ask_other_checks([outcome.outputs for outcome in outcomes], args.torch_python)
            outcomes[:] = (outcome._replace(objections=said) for outcome, said in zip(outcomes, asked, strict=True))
    except BackendError:
        if outcomes:
            show()
        raise
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


def _chosen(patterns: Sequence[str]) -> list[Fault]:
    """Return the faults whose `side:name` any of the globs matches. Raises UsageError for a glob that matches none."""
    names = {f"{fault.side}:{fault.name}": fault for fault in ALL}
    matching = {pattern: fnmatch.filter(names, pattern) for pattern in patterns or ["*"]}
    if unknown := [pattern for pattern, matches in matching.items() if not matches]:
        raise UsageError(
            f"no fault matches {unknown[0]!r}{nearest(unknown[0], names)}; there are {len(names)} faults, "
            "named torch:NAME or keras:NAME"
        )
    return [fault for name, fault in names.items() if any(name in matches for matches in matching.values())]


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
        self._entries = [(number, fault) for number, faults in enumerate(self.faults) for fault in (None, *faults)]
        names = [(number, fault.name if fault else "") for number, fault in self._entries]
        self._tasks = {
            (number, name): Task(self.cases[number], folder / str(number) / (name or "clean"), True, name)
            for number, name in names
        }

    def outcomes(self, runner: Runner) -> Generator[Outcome, None, None]:
        """Yield the outcome of each case without a fault and of each fault, as soon as both sides are recorded."""
        left = Counter(number for number, _ in self._entries)
        results = in_order(self._entries, partial(self._outcome, runner.sides), AHEAD * runner.at_once)
        for (number, _), result in zip(self._entries, results, strict=True):
            yield result
            left[number] -= 1
            if not left[number]:
                shutil.rmtree(self.folder / str(number), ignore_errors=True)

    def _outcome(self, sides: Sequence[Side], entry: tuple[int, Fault | None]) -> Outcome:
        """Return the outcome of recordings of both sides, of which at most one has the fault."""
        number, fault = entry
        case = self.cases[number]
        tasks = {side: self._tasks[number, fault.name if fault and fault.side == side.name else ""] for side in sides}
        for side, task in tasks.items():
            task.begin([side])
        answers = [task.answer(side.name) for side, task in tasks.items()]
        if failed := [answer.message for answer in answers if answer.status != "done"]:
            return Outcome(case, fault, CaseResult(case=case.name, verdict="error", reason=failed[0]), [])
        torch, keras = (Trace(task.folder / side.name) for side, task in tasks.items())
        result = examined(torch, keras).result
        result.details = None  # of hundreds of runs, they would fill the memory
        return Outcome(case, fault, result, outputs(torch, keras))


if __name__ == "__main__":
    cli.end("parity.selftest", main)
