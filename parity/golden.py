"""Golden traces: each side against what it computed before, on this machine or another, by these versions or others.

DIR/CASE/BACKEND is a trace as parity.record leaves it. A side that has none there is not run. A pair starts from the
golden survey's weights on both sides, so that another version's initialisers change nothing.
"""

import argparse
import contextlib
import shlex
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from parity import cli
from parity.config.schema import Case
from parity.core.errors import BackendError, TraceError, UsageError
from parity.core.threads import ended
from parity.diagnose.diagnosis import explained
from parity.pairs.compare import recorded
from parity.pairs.file import PairFile
from parity.pairs.prepare import place
from parity.results import CaseResult, Report, error_kind, failed
from parity.runtime.backend import PACKAGES, Backend, running
from parity.runtime.job import RUNS, Answer, Job
from parity.trace import keys
from parity.trace.manifest import Trace
from parity.trace.mapping import PairContext
from parity.trace.whole import check_steps
from parity.verdict.traces import difference

Chosen = Case | PairFile
Record = Callable[[Chosen, Backend], Answer]


def add_flags(parser: cli.Parser) -> None:
    """What says where the traces are, and that they are to be recorded."""
    add = parser.add_argument
    add("--golden", type=Path, metavar="DIR", help="compare each side with its own trace that is kept there")
    add("--update-golden", action="store_true", help="record the traces of --golden, in the place of those there")


def check(parser: cli.Parser, args: argparse.Namespace) -> None:
    """End with status 2 for flags that do not go with these. Raises UsageError if DIR cannot be written to."""
    if args.golden and (args.traces or args.keep):
        parser.error("--golden=DIR takes neither --keep nor two folders of traces")
    if args.update_golden and not args.golden:
        parser.error("--update-golden needs --golden=DIR, which receives the traces")
    if args.update_golden:
        cli.make_folder("--golden", args.golden)


def run(
    args: argparse.Namespace, chosen: Sequence[Chosen], backends: Sequence[Backend], scratch: Path, report: Report
) -> Iterator[CaseResult]:
    """What the flags ask for. Raises BackendError if a recording failed."""
    if not args.update_golden:
        yield from compared(args.golden, chosen, backends, scratch, report, cli.training_flags(args))
    elif failures := update(args.golden, chosen, backends):
        raised = BackendError if error_kind(failures) == "backend" else UsageError
        raise raised(f"{len(failures)} of {len(chosen) * len(backends)} recordings failed")


def show_skipped(report: Report) -> None:
    """Print the cases that could not be recorded on these devices, or not at all."""
    for result in report.cases:
        print(f"{result.case}  {result.verdict}: {result.reason}", flush=True)


def compared(
    folder: Path,
    chosen: Sequence[Chosen],
    backends: Sequence[Backend],
    scratch: Path,
    report: Report,
    flags: Sequence[str] = (),
) -> Iterator[CaseResult]:
    """Each side of each case against its golden trace. Raises TraceError before anything runs, if one is missing.

    `flags`: what made the cases what they are, for the command that records them.
    """
    golden = {case_of(one).name: _golden(folder, one) for one in chosen}
    if missing := [one for one in chosen if not golden[case_of(one).name]]:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        words = " ".join([*_names(missing), *flags])
        raise TraceError(
            f"{folder} has no golden trace of {case_of(missing[0]).name}{more}; "
            f"record it: python -m parity.compare --golden={folder} --update-golden {words}"
        )

    def record(one: Chosen, backend: Backend) -> Answer:
        return _again(one, backend, scratch / case_of(one).name, folder)

    wanted = [(one, [each for each in backends if each.name in golden[case_of(one).name]]) for one in chosen]
    for one, answers in _recordings(wanted, record):
        name = case_of(one).name
        for backend, answer in answers.items():
            yield _judged(one, backend, answer, golden[name][backend], scratch / name / backend, report)
        shutil.rmtree(scratch / name, ignore_errors=True)


def update(folder: Path, chosen: Sequence[Chosen], backends: Sequence[Backend]) -> list[Answer]:
    """Record each side of each case in the place of what is there; returns the answers of those that failed."""
    failures = []
    with tempfile.TemporaryDirectory(dir=folder, prefix=".recording-") as scratch:

        def record(one: Chosen, backend: Backend) -> Answer:
            return _anew(one, backend, Path(scratch) / case_of(one).name)

        for one, answers in _recordings([(one, backends) for one in chosen], record):
            for backend, answer in answers.items():
                name = f"{case_of(one).name}/{backend}"
                if answer.status == "done":
                    _move(Path(scratch) / name, folder / name, Path(scratch) / f"{name}.old")
                else:
                    failures.append(answer)
                outcome = f"{folder / name}  {answer.seconds:.1f} s" if answer.status == "done" else answer.message
                print(f"{case_of(one).name}  {outcome}", flush=True)
    return failures


def case_of(one: Chosen) -> Case:
    """A pair's case, or a case itself."""
    return one.case if isinstance(one, PairFile) else one


def _golden(folder: Path, one: Chosen) -> dict[str, Trace]:
    """The golden traces of a case, by backend. Raises TraceError if they are of other settings."""
    case, found = case_of(one), {}
    for backend in PACKAGES:
        if (place := folder / case.name / backend).is_dir():
            trace = found[backend] = Trace(place)
            check_steps(trace)
            if trace.case != case:
                raise TraceError(
                    f"{place}: the golden trace is of another case: {difference(trace.case, case)} now; "
                    "choose the same, or record it again with --update-golden"
                )
    return found


def _names(chosen: Sequence[Chosen]) -> list[str]:
    """The flags that choose these again."""
    flags = [one.flags if isinstance(one, PairFile) else [f"--case={one.name}"] for one in chosen]
    return [shlex.quote(flag) for own in flags for flag in own]


def _recordings(
    wanted: Sequence[tuple[Chosen, Sequence[Backend]]], record: Record
) -> Iterator[tuple[Chosen, dict[str, Answer]]]:
    """What is wanted of each backend, both at the same time, but Keras's part of a pair after torch's.

    The answers by backend, case by case: nothing of a case is touched before all of its sides are there.
    """
    backends = list({id(each): each for _, own in wanted for each in own}.values())
    with _threads(backends) as threads, running(backends):
        waiting: list[tuple[Chosen, dict[str, Future[Answer]]]] = []
        for one, own in wanted:
            futures: dict[str, Future[Answer]] = {}
            for backend in own:
                futures[backend.name] = threads[backend].submit(_after, futures.get("torch"), record, one, backend)
            waiting.append((one, futures))
        for one, futures in waiting:
            yield one, {name: ended(future) for name, future in futures.items()}


def _after(before: "Future[Answer] | None", record: Record, one: Chosen, backend: Backend) -> Answer:
    """A recording; of a pair, once torch's is there."""
    if before and isinstance(one, PairFile) and (status := ended(before).status) != "done":
        return Answer(status=status, message=f"{backend.name}: was not run, since torch failed")
    try:
        return record(one, backend)
    except BackendError as error:
        return Answer(status="error", message=str(error))
    except UsageError as error:
        return Answer(status="usage", message=str(error))


@contextlib.contextmanager
def _threads(backends: Sequence[Backend]) -> Iterator[dict[Backend, ThreadPoolExecutor]]:
    """One for each backend; what has not begun when the block is left is not begun."""
    threads = {backend: ThreadPoolExecutor(1) for backend in backends}
    try:
        yield threads
    finally:
        for thread in threads.values():
            thread.shutdown(wait=False, cancel_futures=True)


def _anew(one: Chosen, backend: Backend, folder: Path) -> Answer:
    """A trace with all runs, and a pair's survey with it."""
    if isinstance(one, PairFile):
        return recorded(one, backend, folder)
    return backend.do(Job(case=one, runs=list(keys.RUNS), folder=str((folder / backend.name).absolute())))


def _again(one: Chosen, backend: Backend, folder: Path, golden: Path) -> Answer:
    """A trace to be compared with the golden one: a pair's begins with the golden survey's weights."""
    own = str((folder / backend.name).absolute())
    if not isinstance(one, PairFile):
        return backend.do(Job(case=one, runs=RUNS["keras"], folder=own))
    survey = Path(place(golden / one.case.name, "torch"))
    if not survey.is_dir():
        raise TraceError(
            f"{survey}: not there, and {backend.name} begins with its weights; record torch's golden trace"
        )
    if backend.name == "torch":
        halves = PairContext(search=one.search, survey=str(survey.absolute()))
        return backend.do(Job(case=one.case, runs=RUNS["keras"], folder=own, pair=halves))
    with tempfile.TemporaryDirectory(dir=backend.folder) as apart:
        shutil.copytree(survey, place(Path(apart), "torch"))
        answer = recorded(one, backend, Path(apart))
        if answer.status == "done":
            shutil.move(Path(apart) / backend.name, own)
        return answer


def _judged(one: Chosen, name: str, answer: Answer, golden: Trace, own: Path, report: Report) -> CaseResult:
    row = f"{case_of(one).name} ({name})"
    if answer.status != "done":
        return CaseResult(case=row, verdict="error", error=error_kind([answer]), reason=answer.message)
    try:
        candidate = Trace(own)
        result = explained(golden, candidate)
    except TraceError as error:
        return failed(row, error)
    result.case, result.seconds = row, {name: round(answer.seconds, 3)}
    sides = {f"{name} golden": golden, name: candidate}
    result.devices = {side: trace.manifest.layout.devices for side, trace in sides.items()}
    for side, trace in sides.items():
        report.environment.setdefault(side, {**trace.manifest.versions, **trace.manifest.environment})
    before, now = _facts(golden), _facts(candidate)
    names = dict.fromkeys((*before, *now))
    result.changed = {
        fact: [before.get(fact, ""), now.get(fact, "")] for fact in names if before.get(fact) != now.get(fact)
    }
    return result


def _facts(trace: Trace) -> dict[str, str]:
    """What a computation depends on beside its case."""
    facts = trace.manifest
    return {**facts.versions, **facts.environment, "devices": ", ".join(facts.layout.devices)}


def _move(new: Path, place: Path, old: Path) -> None:
    """The new trace whole into the place of the old one, which stays there if that fails."""
    place.parent.mkdir(parents=True, exist_ok=True)
    if place.exists():
        place.rename(old)
    try:
        new.rename(place)
    except BaseException:
        if old.exists():
            old.rename(place)
        raise
