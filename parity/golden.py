"""Golden traces: compare each side with a trace that it recorded earlier, e.g. before an upgrade or a refactoring.

DIR/CASE/BACKEND holds a trace as parity.record writes it. A backend without a golden trace is not run. Both models of
a pair start from the weights in the golden survey (the recorded description of the pair's torch model), so that
initialisers that changed between framework versions cause no difference.
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
    """Add `--golden` and `--update-golden`."""
    add = parser.add_argument
    add("--golden", type=Path, metavar="DIR", help="compare each side with its own earlier trace in DIR")
    add("--update-golden", action="store_true", help="record the traces in --golden=DIR anew, replacing those there")


def check(parser: cli.Parser, args: argparse.Namespace) -> None:
    """Exit with status 2 if other flags contradict `--golden`. Raises UsageError if DIR cannot be written to."""
    if args.golden and (args.traces or args.keep):
        parser.error("--golden=DIR cannot be used together with --keep or with two trace folders")
    if args.update_golden and not args.golden:
        parser.error("--update-golden needs --golden=DIR, the folder that receives the traces")
    if args.update_golden:
        cli.make_folder("--golden", args.golden)


def run(
    args: argparse.Namespace, chosen: Sequence[Chosen], backends: Sequence[Backend], scratch: Path, report: Report
) -> Iterator[CaseResult]:
    """Compare with the golden traces, or record them if `--update-golden` is given.

    Raises BackendError or UsageError if a recording failed, TraceError if a golden trace is missing.
    """
    if not args.update_golden:
        yield from compared(args.golden, chosen, backends, scratch, report, cli.training_flags(args))
    elif failures := update(args.golden, chosen, backends):
        raised = BackendError if error_kind(failures) == "backend" else UsageError
        raise raised(f"{len(failures)} of {len(chosen) * len(backends)} recordings failed")


def show_skipped(report: Report) -> None:
    """Print the cases whose golden traces were not recorded, each with its reason."""
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
    """Compare each side of each chosen case or pair with its golden trace in `folder`.

    `flags` are those that changed the cases; the error for a missing trace repeats them in the command that records it.
    Raises TraceError, before anything is run, if a case has no golden trace at all.
    """
    golden = {case_of(subject).name: _golden(folder, subject) for subject in chosen}
    if missing := [subject for subject in chosen if not golden[case_of(subject).name]]:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        words = " ".join([*_names(missing), *flags])
        raise TraceError(
            f"{folder} has no golden trace of {case_of(missing[0]).name}{more}; "
            f"record it with: python -m parity.compare --golden={folder} --update-golden {words}"
        )

    def record(subject: Chosen, backend: Backend) -> Answer:
        return _record_candidate(subject, backend, scratch / case_of(subject).name, folder)

    wanted = [
        (subject, [side for side in backends if side.name in golden[case_of(subject).name]]) for subject in chosen
    ]
    for subject, answers in _recordings(wanted, record):
        name = case_of(subject).name
        for backend, answer in answers.items():
            yield _compared(subject, backend, answer, golden[name][backend], scratch / name / backend, report)
        shutil.rmtree(scratch / name, ignore_errors=True)


def update(folder: Path, chosen: Sequence[Chosen], backends: Sequence[Backend]) -> list[Answer]:
    """Record each side of each case, replacing the golden trace in `folder`; return the answers that failed.

    A recording that fails leaves the earlier golden trace as it is.
    """
    failures = []
    with tempfile.TemporaryDirectory(dir=folder, prefix=".recording-") as scratch:

        def record(subject: Chosen, backend: Backend) -> Answer:
            return _record_golden(subject, backend, Path(scratch) / case_of(subject).name)

        for subject, answers in _recordings([(subject, backends) for subject in chosen], record):
            for backend, answer in answers.items():
                name = f"{case_of(subject).name}/{backend}"
                if answer.status == "done":
                    _move(Path(scratch) / name, folder / name, Path(scratch) / f"{name}.old")
                else:
                    failures.append(answer)
                outcome = f"{folder / name}  {answer.seconds:.1f} s" if answer.status == "done" else answer.message
                print(f"{case_of(subject).name}  {outcome}", flush=True)
    return failures


def case_of(subject: Chosen) -> Case:
    """Return the case of a subject: a built-in case is its own."""
    return subject.case if isinstance(subject, PairFile) else subject


def _golden(folder: Path, subject: Chosen) -> dict[str, Trace]:
    """Return the golden traces of a case by backend. Raises TraceError if one was recorded with other settings."""
    case, traces = case_of(subject), {}
    for backend in PACKAGES:
        if (path := folder / case.name / backend).is_dir():
            trace = traces[backend] = Trace(path)
            check_steps(trace)
            if trace.case != case:
                raise TraceError(
                    f"{path}: the golden trace was recorded with other settings: {difference(trace.case, case)} now; "
                    "use the same settings, or record it again with --update-golden"
                )
    return traces


def _names(chosen: Sequence[Chosen]) -> list[str]:
    """Return the flags that choose these cases and pairs, quoted for a shell."""
    flags = [subject.flags if isinstance(subject, PairFile) else [f"--case={subject.name}"] for subject in chosen]
    return [shlex.quote(flag) for own in flags for flag in own]


def _recordings(
    wanted: Sequence[tuple[Chosen, Sequence[Backend]]], record: Record
) -> Iterator[tuple[Chosen, dict[str, Answer]]]:
    """Run the wanted recordings and yield each case with its answers by backend, once all its backends have answered.

    The backends work at the same time, but Keras records a pair only after torch has: it loads torch's weights.
    """
    backends = list({id(backend): backend for _, own in wanted for backend in own}.values())
    with _threads(backends) as threads, running(backends):
        waiting: list[tuple[Chosen, dict[str, Future[Answer]]]] = []
        for subject, own in wanted:
            futures: dict[str, Future[Answer]] = {}
            for backend in own:
                futures[backend.name] = threads[backend].submit(_answer, futures.get("torch"), record, subject, backend)
            waiting.append((subject, futures))
        for subject, futures in waiting:
            yield subject, {name: ended(future) for name, future in futures.items()}


def _answer(torch: "Future[Answer] | None", record: Record, subject: Chosen, backend: Backend) -> Answer:
    """Record one side and return its answer; for a pair, wait for torch's recording first."""
    if torch and isinstance(subject, PairFile) and (status := ended(torch).status) != "done":
        return Answer(status=status, message=f"{backend.name}: was not run, since torch failed")
    try:
        return record(subject, backend)
    except BackendError as error:
        return Answer(status="error", message=str(error))
    except UsageError as error:
        return Answer(status="usage", message=str(error))


@contextlib.contextmanager
def _threads(backends: Sequence[Backend]) -> Iterator[dict[Backend, ThreadPoolExecutor]]:
    """Provide one worker thread for each backend; on exit, cancel the recordings that have not started."""
    threads = {backend: ThreadPoolExecutor(1) for backend in backends}
    try:
        yield threads
    finally:
        for thread in threads.values():
            thread.shutdown(wait=False, cancel_futures=True)


def _record_golden(subject: Chosen, backend: Backend, folder: Path) -> Answer:
    """Record a golden trace: all runs, the witness included, and for a pair its survey."""
    if isinstance(subject, PairFile):
        return recorded(subject, backend, folder)
    return backend.do(Job(case=subject, runs=list(keys.RUNS), folder=str((folder / backend.name).absolute())))


def _record_candidate(subject: Chosen, backend: Backend, folder: Path, golden: Path) -> Answer:
    """Record the trace that is compared with the golden one.

    It needs no witness, which only the reference (the golden trace) must have. A pair starts from the weights in the
    golden survey. Raises TraceError if that survey is missing.
    """
    own = str((folder / backend.name).absolute())
    if not isinstance(subject, PairFile):
        return backend.do(Job(case=subject, runs=RUNS["keras"], folder=own))
    survey = Path(place(golden / subject.case.name, "torch"))
    if not survey.is_dir():
        raise TraceError(
            f"{survey}: not found, and {backend.name} starts from the weights in it; record torch's golden trace first"
        )
    if backend.name == "torch":
        context = PairContext(search=subject.search, survey=str(survey.absolute()))
        return backend.do(Job(case=subject.case, runs=RUNS["keras"], folder=own, pair=context))
    # Keras expects torch's survey in the folder that it writes to: use a copy, so that the golden folder is unchanged.
    with tempfile.TemporaryDirectory(dir=backend.folder) as apart:
        shutil.copytree(survey, place(Path(apart), "torch"))
        answer = recorded(subject, backend, Path(apart))
        if answer.status == "done":
            shutil.move(Path(apart) / backend.name, own)
        return answer


def _compared(subject: Chosen, name: str, answer: Answer, golden: Trace, own: Path, report: Report) -> CaseResult:
    """Compare one backend's new trace in `own` with its golden trace, and note what changed in the environment."""
    row = f"{case_of(subject).name} ({name})"
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
    """Return the versions, environment and devices that a trace was recorded with."""
    facts = trace.manifest
    return {**facts.versions, **facts.environment, "devices": ", ".join(facts.layout.devices)}


def _move(new: Path, target: Path, old: Path) -> None:
    """Replace the trace at `target` by `new`, moving the earlier one to `old`; undo that if it fails."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.exists():
        target.rename(old)
    try:
        new.rename(target)
    except BaseException:
        if old.exists():
            old.rename(target)
        raise
