"""python -m parity.compare: are the PyTorch and the Keras side the same computation?

Without arguments: every built-in case, run on both sides and judged. With two folders: the traces
recorded there.
"""

import argparse
import contextlib
import sys
import tempfile
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from parity import cli, golden
from parity.checkup import inputs
from parity.config.baseline import why_not
from parity.config.cases import names
from parity.config.devices import obstacle
from parity.config.schema import Case
from parity.errors import UsageError
from parity.numerics.across import across
from parity.numerics.against import against_single
from parity.numerics.judge import side_names
from parity.pairs.compare import compared, judged
from parity.pairs.file import PairFile
from parity.report import as_json, terminal
from parity.results import Against, CaseResult, LayoutCheck, Report, worst
from parity.runtime.backend import Backend, feed, running
from parity.runtime.hardware import crowded, missing
from parity.runtime.job import RUNS, Job
from parity.runtime.plan import Plan, Task
from parity.trace.manifest import Trace, find

EPILOG = """Status: 0 all match; 1 something diverged (with --strict also: is subprecision or noisier than it
should be); 2 usage, config or trace error, or nothing was compared; 3 a backend failed."""


def main(argv: Sequence[str]) -> int:
    """Returns the exit status."""
    args = _parse(argv)
    if args.list:
        print("\n".join(names()))
        return 0
    report = Report()
    with contextlib.closing(_results(args, report)) as results:
        for result in results:
            layout = result.checks.get("layout")
            if isinstance(layout, LayoutCheck) and not args.layout:
                layout.sides = {}
            result.mapping = result.mapping if args.mapping else None
            report.add(result)
    if args.update_golden:
        golden.show_skipped(report)
        return 0
    order = {name: place for place, name in enumerate(names())}
    report.cases.sort(key=lambda result: order.get(result.case, len(order)))
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
    cli.add_pair_files(parser)
    add("--torch", default="", metavar="MODULE:FN", help="a pair without a file: what returns your torch.nn.Module")
    add("--keras", default="", metavar="MODULE:FN", help="and what returns your keras.Model")
    add("--input", action="append", default=[], metavar="SPEC", help="name=dtype[shape], e.g. 'ids=int64[2,8]<100'")
    add("--mapping", action="store_true", help="print which weights of a pair belong together")
    vary = argparse.BooleanOptionalAction
    add("--vary", action=vary, default=True, help="compare a pair on variations of its inputs too (default)")
    add("--strict", action="store_true", help="fail also on what float32 cannot see, and on a noisier side")
    add("--json", metavar="FILE", help="write the report there; - for stdout (the table then goes to stderr)")
    add("--layout", action="store_true", help="print both device layouts side by side")
    add("--keep", type=Path, metavar="DIR", help="keep the traces there")
    golden.add_flags(parser)
    add("--list", action="store_true", help="print the names of the built-in cases")
    add("--quiet", action="store_true", help="print no table")
    args = parser.parse_args(argv)
    _check(parser, args)
    golden.check(parser, args)
    if args.json is not None:
        as_json.check(args.json)
    if args.keep is not None:
        cli.make_folder("--keep", args.keep)
    return args


def _check(parser: cli.Parser, args: argparse.Namespace) -> None:
    """End with status 2 for flags that do not go together."""
    chooses = [args.case, args.set, args.keep, args.precision, args.steps, args.every, args.seed, args.devices]
    chooses += [args.pair, args.torch or None, args.keras or None, args.input]
    if args.traces and (len(args.traces) != 2 or any(value not in (None, []) for value in chooses)):
        parser.error(f"received {len(args.traces)} folders of traces, expected two and no flags that choose cases")
    if bool(args.torch) != bool(args.keras) or bool(args.torch) != bool(args.input):
        parser.error(f"--torch, --keras and --input make a pair together, e.g. {inputs.EXAMPLE}")
    if args.mapping and not (args.pair or args.torch):
        parser.error("--mapping is of a pair: expected --pair=FILE.toml, or --torch, --keras and --input")


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
    """Both backends run everything that the cases need at the same time; a case is judged when all is there."""
    devices = cli.devices(args)
    chosen, pairs = cli.chosen_cases(args, devices), cli.pair_files(args, devices)
    runnable = []
    absent = missing(devices, cli.pythons(args))
    for case in chosen:
        if reason := absent or obstacle(case) or crowded(case, devices, cli.pythons(args)):
            yield CaseResult(case=case.name, verdict="skipped", reason=reason)
        else:
            runnable.append(case)
    plan = Plan(runnable, scratch, args.keep)
    backends = [Backend(name, python, scratch, devices.kind) for name, python in cli.pythons(args).items()]
    if args.golden:
        yield from golden.run(args, [*pairs, *runnable], backends, scratch, report)
        return
    jobs = {
        backend: [
            Job(case=task.case, runs=RUNS[backend.name], folder=str((task.folder / backend.name).absolute()))
            for task in plan.tasks
        ]
        for backend in backends
    }
    waiting = dict(enumerate(runnable))
    with running(backends), _progress(len(runnable) + len(pairs)) as progress:
        for file in pairs:
            yield _pair(file, backends, (args.keep or scratch) / file.case.name, report, args.vary)
            progress.advance(progress.task_ids[0])
        for backend, number, answer in feed(jobs):
            if answer.status == "usage":
                raise UsageError(answer.message)
            plan.tasks[number].answers[backend] = answer
            ready = [n for n in waiting if all(len(task.answers) == len(backends) for task in plan.needs(n))]
            for n in ready:
                yield _conclude(args, waiting.pop(n), plan.own[n], plan.baselines[n], report)
                for task in plan.needs(n):
                    task.release(n)
                progress.advance(progress.task_ids[0])


def _pair(file: PairFile, backends: Sequence[Backend], folder: Path, report: Report, vary: bool) -> CaseResult:
    result = compared(file, backends, folder, vary)
    if result.verdict != "error":
        _note_environment(Trace(folder / "torch"), Trace(folder / "keras"), report)
    return result


def _conclude(args: argparse.Namespace, case: Case, own: Task, single: Task | None, report: Report) -> CaseResult:
    failures = [
        f"{answer.message}\n    again: python -m parity.record --backend={name} "
        f"{cli.case_flags(args, case)} --out=traces"
        for name, answer in own.answers.items()
        if answer.status == "error"
    ]
    if failures:
        result = CaseResult(case=case.name, verdict="error", reason="\n".join(failures))
    else:
        result = _judge(Trace(own.folder / "torch"), Trace(own.folder / "keras"), report)
        result.case = case.name  # a training that two cases share is recorded under the name of one
        if case.strategy != "single":
            result.against_single = {name: _against(case, own, single, name) for name in own.answers}
        result.verdict = worst([result.verdict, *(against.verdict for against in result.against_single.values())])
    result.seconds = {name: round(answer.seconds, 3) for name, answer in own.answers.items()}
    return result


def _against(case: Case, own: Task, single: Task | None, backend: str) -> Against:
    if single is None:
        return Against(skipped=why_not(case))
    if single.answers[backend].status == "error":
        return Against(skipped=f"the training on a single device failed: {single.answers[backend].message}")
    torch = single.answers["torch"].status == "done"
    witness = Trace(single.folder / "torch") if torch else None
    return against_single(Trace(single.folder / backend), Trace(own.folder / backend), witness)


def _judge(one: Trace, other: Trace, report: Report) -> CaseResult:
    """PyTorch is the reference, whichever is named first."""
    reference, candidate = (other, one) if (one.backend, other.backend) == ("keras", "torch") else (one, other)
    _note_environment(reference, candidate, report)
    if reference.backend == candidate.backend and reference.case != candidate.case:
        return across(reference, candidate)
    return judged(reference, candidate)


def _note_environment(reference: Trace, candidate: Trace, report: Report) -> None:
    for name, trace in zip(side_names(reference, candidate), (reference, candidate), strict=True):
        report.environment.setdefault(name, {**trace.manifest.versions, **trace.manifest.environment})


@contextlib.contextmanager
def _progress(total: int) -> Iterator[Progress]:
    console = Console(stderr=True)
    columns = TextColumn("comparing"), BarColumn(), MofNCompleteColumn(), TextColumn("cases")
    with Progress(*columns, console=console, transient=True, disable=not sys.stderr.isatty()) as progress:
        progress.add_task("", total=total)
        yield progress


if __name__ == "__main__":
    cli.end("parity.compare", main)
