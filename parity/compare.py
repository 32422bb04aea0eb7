"""Compare a model in PyTorch with the same model in Keras, and report where and why they differ.

Without arguments, runs built-in cases, of every model and every strategy, in both frameworks and compares the recorded
traces; with --all, all of them. With --pair, compares your own two models. With two folders, compares the traces that
were recorded there.
"""

from parity.core import process
from parity.core.wording import count

if __name__ == "__main__":
    process.end_at_once("parity.compare")  # the imports below take seconds; Ctrl-C must end them without a traceback

import argparse
import contextlib
import os
import sys
import tempfile
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from parity import certify, cli, golden
from parity.config.cases import names
from parity.config.devices import Devices, obstacle
from parity.config.schema import Case
from parity.core import inputs
from parity.core.errors import UsageError
from parity.core.script import is_script
from parity.pairs.accepting.suggest import accept
from parity.repair import flags
from parity.report import ci, output, terminal
from parity.report.html import comparison
from parity.report.output import progress
from parity.results import CaseResult, Report, failed
from parity.runtime import resources
from parity.runtime.resources import crowded, missing
from parity.runtime.runner import Runner, in_order
from parity.subjects import Plan, Subject, compared_folders
from parity.subjects.run import BuiltIn, UserPair
from parity.subjects.sides import SidePair, SidesOfPair

S = TypeVar("S", bound=Subject)
AHEAD = 3  # cases that are begun for each processor: torch is several times as fast as Keras, and records ahead
EPILOG = """Exit status: 0 all cases match; 1 a case diverged or is inconclusive (with --strict also: is subprecision or
has a finding); 2 a flag, config or trace is wrong, or nothing was compared; 3 a backend failed. If several apply, the
highest counts."""
NOTHING = "nothing was written: no difference of this pair has a known cause that could be accepted"


def main(argv: Sequence[str], program: str = "parity.compare") -> int:
    """Run the comparison that the flags describe, called as `program`, and return the exit status."""
    args = _parse(argv, program)
    if args.list:
        print("\n".join(names()))
        return 0
    report = Report(command=cli.command_line(program, argv))
    printed = terminal.Printed(sys.stderr if args.json == "-" else sys.stdout, layouts=args.layout)
    makers = {
        "html": lambda: comparison.render(report),
        "junit": lambda: ci.junit("parity.compare", ci.tests_of_cases(report, args.strict)),
        "sarif": lambda: ci.sarif(ci.remarks_of_causes(report)),
        "markdown": lambda: ci.comparison(report),
    }

    def show() -> None:
        for skipped in report.cases if args.update_golden else ():
            print(f"{skipped.case}  {skipped.verdict}: {skipped.reason}", flush=True)
        if not args.quiet and not args.update_golden:
            printed.end(report)

    with output.written(args, report, makers, show=show):
        _collect(args, report, printed)
    return report.status(args.strict) if not args.update_golden or report.summary.get("error") else 0


def _collect(args: argparse.Namespace, report: Report, printed: terminal.Printed) -> None:
    """Add the result of every case to the report, and print its row, as soon as it is known.

    Raises UsageError, BackendError and MissingError.
    """
    with contextlib.closing(_results(args, report, printed)) as results:
        for result in results:
            # Without the parts of which a report has many, unless a flag needs them.
            if result.layout and not (args.layout or args.html):
                result.layout.sides = {}
            result.mapping = result.mapping if args.mapping else None
            result.details = result.details if args.html else None
            report.add(result)
            if not args.quiet and not args.update_golden:
                printed.add(result)


def _parse(argv: Sequence[str], program: str) -> argparse.Namespace:
    parser = cli.Parser(prog=program, description=__doc__, epilog=EPILOG)
    add = parser.add_argument
    add("traces", nargs="*", type=Path, metavar="TRACE", help="two folders of recorded traces; nothing is run")
    cli.add_runs(parser)
    sides = (
        "compare these sides of the pair file, each with the first: plain runs of a framework ('torch', 'keras') or "
        "what the file declares as [sides.NAME], e.g. accumulate = 4"
    )
    add("--sides", type=lambda text: text.split(","), default=[], metavar="A,B[,C...]", help=sides)
    pair = "pair without a file: function that returns a {}, or a training script, e.g. '{} --epochs=1'"
    add("--torch", default="", metavar="MODULE:FN", help=pair.format("torch.nn.Module", "train.py"))
    add("--keras", default="", metavar="MODULE:FN", help=pair.format("keras.Model", "train_keras.py"))
    given = "an input of that pair, as name=dtype[shape], e.g. 'ids=int64[2,8]<100' (repeatable)"
    add("--input", action="append", default=[], metavar="SPEC", help=given)
    add("--mapping", action="store_true", help="print which torch weight of a pair belongs to which Keras weight")
    known = "add to the pair file the entries that accept the differences whose cause is known"
    add("--accept", action="store_true", help=known)
    flags.add_flags(parser)
    vary = argparse.BooleanOptionalAction
    add("--vary", action=vary, default=True, help="compare a pair also on variations of its inputs (default)")
    add("--record", choices=["full"], help="of a pair with over 33 million weights, record all tensors whole at once")
    add("--strict", action="store_true", help="fail also on findings, and on differences that float32 cannot see")
    output.add_flags(parser, "the report", "html", "junit", "sarif")
    add("--layout", action="store_true", help="print both device layouts side by side")
    add("--keep", type=Path, metavar="DIR", help="keep the recorded traces in DIR")
    golden.add_flags(parser)
    certify.add_flags(parser)
    add("--list", action="store_true", help="print the names of the built-in cases")
    add("--quiet", action="store_true", help="print no table")
    args = parser.parse_args(argv)
    certify.check(parser, args)
    _check(parser, args)
    golden.check(parser, args)
    flags.check(parser, args)
    output.check(args)
    if args.keep is not None:
        cli.make_folder("--keep", args.keep)
    return args


def _check(parser: cli.Parser, args: argparse.Namespace) -> None:
    """Exit with status 2 if flags contradict each other or one lacks another that it needs."""
    pair = args.pair or args.torch or args.keras or args.input
    chooses = pair or args.case or args.all or args.keep or cli.training_flags(args)
    if flags := [flag for trace in args.traces if not os.path.isdir(trace) and (flag := cli.pair_flag(str(trace)))]:
        given = " ".join(map(str, args.traces))
        parser.error(f"received {given}, expected folders of traces; for a pair's file, write {' '.join(flags)}")
    if args.traces and (len(args.traces) != 2 or chooses):
        parser.error(
            f"received {count(len(args.traces), 'trace folder')}; to compare traces, expected two and no flags that "
            "choose or change cases"
        )
    needs_inputs = not (is_script(args.torch) and is_script(args.keras))
    if not args.certificate and not bool(args.torch) == bool(args.keras) == bool(args.input or not needs_inputs):
        parser.error(
            f"a pair without a file needs all of --torch, --keras and --input, e.g. {inputs.EXAMPLE}; two training "
            "scripts (--torch=train.py --keras=train_keras.py) bring their inputs"
        )
    if args.accept and (args.set or args.golden or not args.pair):
        parser.error(
            "--accept writes into a pair file: it needs --pair=FILE.toml, and takes neither --set nor --golden"
        )
    if args.sides and (args.golden or args.accept or args.mapping or args.repair or args.reproduce or not args.pair):
        parser.error(
            "--sides compares sides of a pair file: it needs --pair=FILE.toml, and takes none of --golden, --accept, "
            "--mapping, --repair and --reproduce"
        )
    if args.mapping and not (args.pair or args.torch or args.certificate):
        parser.error("--mapping is for pairs only: it needs --pair=FILE.toml, or --torch, --keras and --input")


def _results(args: argparse.Namespace, report: Report, printed: terminal.Printed) -> Generator[CaseResult, None, None]:
    if args.traces:
        first, second = args.traces
        yield from compared_folders(first, second, report)
        return
    with tempfile.TemporaryDirectory(prefix="parity-") as scratch:
        if args.certificate:
            yield from certify.judged(args, Path(scratch), report)
            return
        yield from _run(args, Path(scratch), report, printed)


def _run(args: argparse.Namespace, scratch: Path, report: Report, printed: terminal.Printed) -> Iterator[CaseResult]:
    """Run the chosen cases and pairs on both sides, and yield their results in this order."""
    devices, pythons = cli.devices(args), cli.pythons(args)
    chosen, (pairs, errors) = (
        cli.chosen_cases(args, devices),
        cli.pair_files(args, devices, runs_scripts=args.golden is None),
    )
    wrong = [failed(error.case, error) for error in errors]
    not_run = {result.case: result for result in _not_run(args, chosen, devices, scratch)}
    plan = Plan([case for case in chosen if case.name not in not_run], scratch, args.keep)
    builtin = [BuiltIn(case, cli.training_flags(args)) for case in chosen]
    with Runner.of(pythons, scratch, devices.kind, args.timeout) as runner:
        own: list[Subject] = []
        for file in pairs:
            if file.sides:
                sides = SidesOfPair(file, runner.worker, plan.folder / f"{file.case.name}@sides")
                own += [SidePair(sides, candidate) for candidate in file.sides[1:]]
            else:
                own.append(UserPair(file, args.vary, flags.follow_up(args, scratch), args.record == "full"))
        if args.golden:
            yield from (*not_run.values(), *wrong)
            runnable = [subject for subject in builtin if subject.case.name not in not_run]
            yield from golden.run(args, [*own, *runnable], runner, scratch, report)
            return

        def compared(subject: S) -> tuple[S, CaseResult]:
            result = not_run.get(subject.case.name) or subject.compared(runner.sides, plan, report)
            result.command = cli.compared_by(subject.again, args)
            return subject, result

        subjects = [*builtin, *own]
        printed.names = [subject.case.name for subject in subjects]
        with progress("comparing", len(subjects), "case", runner.doing, printed.console) as advance:
            for _, result in in_order(builtin, compared, AHEAD * runner.at_once):
                yield result
                advance()
            yield from wrong
            # A pair's traces may be large: no more of them at the same time than can be worked on.
            for subject, result in in_order(own, compared, runner.at_once):
                if args.accept and isinstance(subject, UserPair):
                    _accept(subject, result)
                yield result
                advance()


def _not_run(args: argparse.Namespace, chosen: Sequence[Case], devices: Devices, scratch: Path) -> Iterator[CaseResult]:
    """Yield the results of the built-in cases that the devices cannot run, or for which there is no room."""
    absent = missing(devices, cli.pythons(args)) if chosen else ""
    for case in chosen:
        try:
            if reason := absent or obstacle(case) or crowded(case, devices, cli.pythons(args)):
                yield CaseResult(case=case.name, verdict="skipped", reason=reason)
            else:
                resources.check(case, resources.of_case(case), args.keep or scratch)
        except UsageError as error:
            yield failed(case.name, error)


def _accept(pair: UserPair, result: CaseResult) -> None:
    """Add to the pair file the entries that accept its differences, and print them or why that failed."""
    file = pair.file
    if file.path is None or result.verdict in ("match", "error"):
        return
    try:
        added = accept(file.path, result.suggestions)
        written = f"added to {file.path}:\n\n{added}" if added else NOTHING
    except UsageError as error:  # not fatal: this pair keeps its verdict, and the next pairs are still compared
        written = str(error)
    print(f"{result.case}: {written}", file=sys.stderr)


if __name__ == "__main__":
    cli.end("parity.compare", main)
