"""python -m parity.compare: are the PyTorch and the Keras side the same computation?

Without arguments: every built-in case, run on both sides and judged. With two folders: the traces
recorded there.
"""

import argparse
import contextlib
import shutil
import sys
import tempfile
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from parity import cli
from parity.config.cases import names
from parity.config.schema import Case
from parity.errors import UsageError
from parity.numerics.judge import compare, side_names
from parity.report import as_json, terminal
from parity.results import CaseResult, Report
from parity.runtime.backend import Backend, feed, running
from parity.runtime.job import Answer, Job
from parity.trace.manifest import Trace, find

EPILOG = """Status: 0 all match; 1 something diverged (with --strict also: is subprecision or noisier than it
should be); 2 usage, config or trace error, or nothing was compared; 3 a backend failed."""
RUNS = {"torch": ["low", "high", "witness"], "keras": ["low", "high"]}


def main(argv: Sequence[str]) -> int:
    """Returns the exit status."""
    args = _parse(argv)
    if args.list:
        print("\n".join(names()))
        return 0
    report = Report()
    with contextlib.closing(_results(args, report)) as results:
        for result in results:
            report.add(result)
    if not args.quiet:
        terminal.show(report, sys.stderr if args.json == "-" else sys.stdout)
    if args.json is not None:
        as_json.write(report, args.json)
    return report.status(args.strict)


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = cli.Parser(prog="parity.compare", description=__doc__, epilog=EPILOG)
    add = parser.add_argument
    add("traces", nargs="*", type=Path, metavar="TRACE", help="two folders of recorded traces, instead of running")
    cli.add_case_flags(parser)
    add("--strict", action="store_true", help="fail also on what float32 cannot see, and on a noisier side")
    add("--json", metavar="FILE", help="write the report there; - for stdout (the table then goes to stderr)")
    add("--keep", type=Path, metavar="DIR", help="keep the traces there")
    add("--list", action="store_true", help="print the names of the built-in cases")
    add("--quiet", action="store_true", help="print no table")
    args = parser.parse_args(argv)
    chooses = [args.case, args.set, args.keep, args.precision, args.steps, args.every, args.seed]
    if args.traces and (len(args.traces) != 2 or any(value not in (None, []) for value in chooses)):
        parser.error(f"received {len(args.traces)} folders of traces, expected two and no flags that choose cases")
    if args.json is not None:
        as_json.check(args.json)
    if args.keep is not None:
        cli.make_folder("--keep", args.keep)
    return args


def _results(args: argparse.Namespace, report: Report) -> Generator[CaseResult, None, None]:
    if args.traces:
        one, other = args.traces
        yield from _recorded(one, other, report)
        return
    with tempfile.TemporaryDirectory(prefix="parity-") as scratch:
        yield from _run(args, Path(scratch), report)


def _recorded(one: Path, other: Path, report: Report) -> Iterator[CaseResult]:
    """The traces below two folders, paired by case."""
    left, right = _by_case(one), _by_case(other)
    if len(left) == len(right) == 1:  # two traces of different cases are told to be that
        right = dict(zip(left, right.values(), strict=True))
    if missing := sorted(left.keys() ^ right.keys()):
        raise UsageError(f"only one of {one} and {other} has a trace of {', '.join(missing)}")
    for name, trace in left.items():
        yield _judge(trace, right[name], report)


def _by_case(folder: Path) -> dict[str, Trace]:
    traces: dict[str, Trace] = {}
    for path in find(folder):
        trace = Trace(path)
        if trace.case.name in traces:
            raise UsageError(
                f"{folder}: holds two traces of {trace.case.name} ({traces[trace.case.name].folder}, {path}); "
                "name a folder that holds one"
            )
        traces[trace.case.name] = trace
    return traces


def _run(args: argparse.Namespace, scratch: Path, report: Report) -> Iterator[CaseResult]:
    """Both backends run all cases at the same time; each case is judged when both have it."""
    chosen = cli.chosen_cases(args)
    home = args.keep or scratch
    backends = [Backend("torch", args.torch_python, scratch), Backend("keras", args.keras_python, scratch)]
    jobs = {
        backend: [
            Job(case=case, runs=RUNS[backend.name], folder=str((home / case.name / backend.name).absolute()))
            for case in chosen
        ]
        for backend in backends
    }
    answers: list[dict[str, Answer]] = [{} for _ in chosen]
    with running(backends), _progress(len(chosen)) as progress:
        for backend, number, answer in feed(jobs):
            if answer.status == "usage":
                raise UsageError(answer.message)
            answers[number][backend] = answer
            if len(answers[number]) == len(backends):
                yield _conclude(args, chosen[number], home / chosen[number].name, answers[number], report)
                progress.advance(progress.task_ids[0])


def _conclude(
    args: argparse.Namespace, case: Case, folder: Path, answers: dict[str, Answer], report: Report
) -> CaseResult:
    failures = [
        f"{answer.message}\n    again: python -m parity.record --backend={name} "
        f"{cli.case_flags(args, case)} --out=traces"
        for name, answer in answers.items()
        if answer.status == "error"
    ]
    if failures:
        result = CaseResult(case=case.name, verdict="error", reason="\n".join(failures))
    else:
        result = _judge(Trace(folder / "torch"), Trace(folder / "keras"), report)
    if args.keep is None:
        shutil.rmtree(folder, ignore_errors=True)
    result.seconds = {name: round(answer.seconds, 3) for name, answer in answers.items()}
    return result


def _judge(one: Trace, other: Trace, report: Report) -> CaseResult:
    """PyTorch is the reference, whichever is named first."""
    reference, candidate = (other, one) if (one.backend, other.backend) == ("keras", "torch") else (one, other)
    for name, trace in zip(side_names(reference, candidate), (reference, candidate), strict=True):
        report.environment.setdefault(
            name,
            {**trace.manifest.versions, **trace.manifest.environment, "devices": trace.manifest.layout.devices},
        )
    return compare(reference, candidate)


@contextlib.contextmanager
def _progress(total: int) -> Iterator[Progress]:
    console = Console(stderr=True)
    columns = TextColumn("comparing"), BarColumn(), MofNCompleteColumn(), TextColumn("cases")
    with Progress(*columns, console=console, transient=True, disable=not sys.stderr.isatty()) as progress:
        progress.add_task("", total=total)
        yield progress


if __name__ == "__main__":
    cli.end("parity.compare", main)
