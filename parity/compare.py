"""Compare a model in PyTorch with the same model in Keras, and report where and why they differ.

Without arguments, runs every built-in case in both frameworks and compares the recorded traces. With --pair,
compares your own two models. With two folders, compares the traces that were recorded there.
"""

from parity.core import signals

if __name__ == "__main__":
    signals.end_at_once("parity.compare")  # the imports below take seconds; Ctrl-C must end them without a traceback

import argparse
import contextlib
import shutil
import sys
import tempfile
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from parity import cli, golden
from parity.config.baseline import why_not
from parity.config.cases import names
from parity.config.devices import obstacle
from parity.config.schema import Case
from parity.core import inputs
from parity.core.errors import BackendError, MissingError, UsageError
from parity.pairs.accept import accept
from parity.pairs.compare import compared, judged
from parity.pairs.file import PairFile
from parity.report import as_json, terminal
from parity.results import Against, CaseResult, LayoutCheck, Report, error_kind, failed, worst
from parity.runtime import resources
from parity.runtime.backend import Backend, feed, running
from parity.runtime.hardware import crowded, missing
from parity.runtime.job import RUNS, Job
from parity.runtime.plan import Plan, Task
from parity.trace.manifest import Trace, find
from parity.trace.whole import check_steps
from parity.verdict.across import across
from parity.verdict.against import against_single
from parity.verdict.traces import side_names

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
    report = Report()
    try:
        _collect(args, report)
    except (UsageError, BackendError, MissingError) as error:
        report.error = str(error)
        if args.json is not None:  # keep the results of the cases that were compared before the error
            as_json.write(report, args.json)
        raise
    if args.update_golden:
        golden.show_skipped(report)
        return report.status(args.strict) if report.summary.get("error") else 0
    order = {name: index for index, name in enumerate(names())}
    report.cases.sort(key=lambda result: order.get(result.case, len(order)))
    try:
        if args.json is not None:  # before the table: printing may fail, e.g. when the output pipe is closed
            as_json.write(report, args.json)
    finally:
        if not args.quiet:
            terminal.show(report, sys.stderr if args.json == "-" else sys.stdout)
    return report.status(args.strict)


def _collect(args: argparse.Namespace, report: Report) -> None:
    """Add the result of every case to the report as soon as it is known.

    Raises UsageError, BackendError and MissingError.
    """
    with contextlib.closing(_results(args, report)) as results:
        for result in results:
            layout = result.checks.get("layout")
            if isinstance(layout, LayoutCheck) and not args.layout:
                layout.sides = {}
            result.mapping = result.mapping if args.mapping else None
            report.add(result)


def _parse(argv: Sequence[str], program: str) -> argparse.Namespace:
    parser = cli.Parser(prog=program, description=__doc__, epilog=EPILOG)
    add = parser.add_argument
    add("traces", nargs="*", type=Path, metavar="TRACE", help="two folders of recorded traces; nothing is run")
    cli.add_case_flags(parser)
    cli.add_timeout(parser)
    cli.add_pair_files(parser)
    add("--torch", default="", metavar="MODULE:FN", help="pair without a file: function that returns a torch.nn.Module")
    add("--keras", default="", metavar="MODULE:FN", help="pair without a file: function that returns a keras.Model")
    add(
        "--input",
        action="append",
        default=[],
        metavar="SPEC",
        help="an input of that pair, as name=dtype[shape], e.g. 'ids=int64[2,8]<100' (repeatable)",
    )
    add("--mapping", action="store_true", help="print which torch weight of a pair belongs to which Keras weight")
    add(
        "--accept",
        action="store_true",
        help="add to the pair file the entries that accept the differences whose cause is known",
    )
    vary = argparse.BooleanOptionalAction
    add("--vary", action=vary, default=True, help="compare a pair also on variations of its inputs (default)")
    add("--strict", action="store_true", help="fail also on findings, and on differences that float32 cannot see")
    add("--json", metavar="FILE", help="write the report to FILE; - is stdout (the table then goes to stderr)")
    add("--layout", action="store_true", help="print both device layouts side by side")
    add("--keep", type=Path, metavar="DIR", help="keep the recorded traces in DIR")
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
    """Exit with status 2 if flags contradict each other or one lacks another that it needs."""
    chooses = [args.case, args.set, args.keep, args.precision, args.steps, args.every, args.seed, args.devices]
    chooses += [args.pair, args.torch or None, args.keras or None, args.input]
    if args.traces and (len(args.traces) != 2 or any(value not in (None, []) for value in chooses)):
        parser.error(
            f"received {len(args.traces)} trace folders; to compare traces, expected two and no flags that choose "
            "or change cases"
        )
    if bool(args.torch) != bool(args.keras) or bool(args.torch) != bool(args.input):
        parser.error(f"a pair without a file needs all of --torch, --keras and --input, e.g. {inputs.EXAMPLE}")
    if args.accept and (args.set or args.golden or not args.pair):
        parser.error(
            "--accept writes into a pair file: it needs --pair=FILE.toml, and takes neither --set nor --golden"
        )
    if args.mapping and not (args.pair or args.torch):
        parser.error("--mapping is for pairs only: it needs --pair=FILE.toml, or --torch, --keras and --input")


def _results(args: argparse.Namespace, report: Report) -> Generator[CaseResult, None, None]:
    if args.traces:
        first, second = args.traces
        yield from _recorded(first, second, report)
        return
    with tempfile.TemporaryDirectory(prefix="parity-") as scratch:
        yield from _run(args, Path(scratch), report)


def _recorded(first: Path, second: Path, report: Report) -> Iterator[CaseResult]:
    """Compare the traces in two folders case by case. Raises UsageError if a case is in one folder only."""
    left, right = _by_case(first), _by_case(second)
    if len(left) == len(right) == 1:  # pair them even if their cases differ: the comparison then says in what
        right = dict(zip(left, right.values(), strict=True))
    if missing := sorted(left.keys() ^ right.keys()):
        raise UsageError(f"only one of {first} and {second} holds a trace of {', '.join(missing)}")
    for name, trace in left.items():
        try:
            yield _compare(trace, right[name], report)
        except UsageError as error:
            if len(left) == 1:
                raise
            yield failed(name, error)


def _by_case(folder: Path) -> dict[str, Trace]:
    traces: dict[str, Trace] = {}
    for path in find(folder):
        trace = Trace(path)
        if trace.case.name in traces:
            raise UsageError(
                f"{folder}: holds two traces of {trace.case.name} ({traces[trace.case.name].folder}, {path}); "
                "name a folder that holds one trace of each case"
            )
        traces[trace.case.name] = trace
    return traces


def _run(args: argparse.Namespace, scratch: Path, report: Report) -> Iterator[CaseResult]:
    """Run the chosen cases and pairs on both backends, and yield the result of each as soon as it is recorded.

    Pairs come first, one after the other; then both backends work through the cases side by side.
    Cases that the devices cannot run are yielded as skipped.
    """
    devices = cli.devices(args)
    chosen, (pairs, wrong) = cli.chosen_cases(args, devices), cli.pair_files(args, devices)
    yield from (failed(error.case, error) for error in wrong)
    runnable = []
    absent = missing(devices, cli.pythons(args))
    for case in chosen:
        if reason := absent or obstacle(case) or crowded(case, devices, cli.pythons(args)):
            yield CaseResult(case=case.name, verdict="skipped", reason=reason)
        else:
            runnable.append(case)
    for case in list(runnable):
        try:
            resources.check(case, resources.of_case(case), args.keep or scratch)
        except UsageError as error:
            runnable.remove(case)
            yield failed(case.name, error)
    plan = Plan(runnable, scratch, args.keep)
    pythons = cli.pythons(args).items()
    backends = [Backend(name, python, scratch, devices.kind, args.timeout) for name, python in pythons]
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
            folder = (args.keep or scratch) / file.case.name
            result = _pair(file, backends, folder, report, args.vary)
            if args.accept:
                _accept(file, result)
            yield result
            if not args.keep:
                shutil.rmtree(folder, ignore_errors=True)  # the next pair may need the disk space
            progress.advance(progress.task_ids[0])
        for backend, number, answer in feed(jobs):
            plan.tasks[number].answers[backend] = answer
            ready = [n for n in waiting if all(len(task.answers) == len(backends) for task in plan.needs(n))]
            for n in ready:
                yield _conclude(args, waiting.pop(n), plan.own[n], plan.baselines[n], report)
                for task in plan.needs(n):
                    task.release(n)
                progress.advance(progress.task_ids[0])


def _pair(file: PairFile, backends: Sequence[Backend], folder: Path, report: Report, vary: bool) -> CaseResult:
    try:
        result = compared(file, backends, folder, vary)
    except UsageError as error:
        result = failed(file.case.name, error)
    if result.verdict != "error":
        _note_environment(Trace(folder / "torch"), Trace(folder / "keras"), report)
    return result


def _accept(file: PairFile, result: CaseResult) -> None:
    """Add to the pair file the entries that accept its differences, and print them or why that failed."""
    if file.path is None or result.verdict in ("match", "error"):
        return
    try:
        added = accept(file.path, result.suggestions)
        written = f"added to {file.path}:\n\n{added}" if added else NOTHING
    except UsageError as error:  # not fatal: this pair keeps its verdict, and the next pairs are still compared
        written = str(error)
    print(f"{result.case}: {written}", file=sys.stderr)


def _conclude(args: argparse.Namespace, case: Case, own: Task, single: Task | None, report: Report) -> CaseResult:
    """Return the result of a built-in case from what the backends answered, failures included.

    `own` is the recording of the case itself, `single` that of the same training on a single device.
    """
    failures = [
        f"{answer.message}\n    again: python -m parity.record --backend={name} "
        f"{cli.case_flags(args, case)} --out=traces"
        for name, answer in own.answers.items()
        if answer.status != "done"
    ]
    if failures:
        result = CaseResult(case=case.name, verdict="error", reason="\n".join(failures))
        result.error = error_kind(own.answers.values())
    else:
        try:
            result = _compare_recorded(case, own, single, report)
        except UsageError as error:
            result = failed(case.name, error)
    result.seconds = {name: round(answer.seconds, 3) for name, answer in own.answers.items()}
    return result


def _compare_recorded(case: Case, own: Task, single: Task | None, report: Report) -> CaseResult:
    """Return the verdict on a built-in case that both sides have recorded. Raises TraceError."""
    result = _compare(Trace(own.folder / "torch"), Trace(own.folder / "keras"), report)
    result.case = case.name  # cases with the same training share one trace, which bears the name of only one of them
    if case.distribution.is_distributed:
        result.against_single = {name: _against(case, own, single, name) for name in own.answers}
    result.verdict = worst([result.verdict, *(against.verdict for against in result.against_single.values())])
    return result


def _against(case: Case, own: Task, single: Task | None, backend: str) -> Against:
    """Compare one backend's distributed training with its training on a single device."""
    if single is None:
        return Against(skipped=why_not(case))
    if single.answers[backend].status != "done":
        return Against(skipped=f"the training on a single device failed: {single.answers[backend].message}")
    torch = single.answers["torch"].status == "done"
    witness = Trace(single.folder / "torch") if torch else None
    return against_single(Trace(single.folder / backend), Trace(own.folder / backend), witness)


def _compare(first: Trace, second: Trace, report: Report) -> CaseResult:
    """Compare two traces; PyTorch is the reference, whichever is named first. Raises TraceError."""
    swapped = (first.backend, second.backend) == ("keras", "torch")
    reference, candidate = (second, first) if swapped else (first, second)
    for trace in (reference, candidate):
        check_steps(trace)
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
