"""Golden traces: compare each side with a trace that it recorded earlier, e.g. before an upgrade or a refactoring.

DIR/CASE/BACKEND holds a trace as parity.record writes it. A backend without a golden trace is not run. Both models of
a pair start from the weights in the golden survey (the recorded description of the pair's torch model), so that
initialisers that changed between framework versions cause no difference.
"""

import argparse
import shlex
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path

from parity import cli
from parity.core.errors import BackendError, TraceError, UsageError
from parity.core.wording import count, listed
from parity.diagnose.diagnosis import examined
from parity.results import CaseResult, Report, error_kind, failed
from parity.runtime.backend import PACKAGES
from parity.runtime.job import Answer
from parity.runtime.runner import Runner, Side, begun, ended, in_order
from parity.subjects import Subject, check_steps
from parity.trace.manifest import Trace
from parity.verdict.traces import difference


def add_flags(parser: cli.Parser) -> None:
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
    args: argparse.Namespace, chosen: Sequence[Subject], runner: Runner, scratch: Path, report: Report
) -> Iterator[CaseResult]:
    """Compare with the golden traces, or record them if `--update-golden` is given.

    Raises BackendError or UsageError if a recording failed, TraceError if a golden trace is missing.
    """
    if not args.update_golden:
        yield from compared(args.golden, chosen, runner, scratch, report, cli.training_flags(args))
    elif failures := update(args.golden, chosen, runner):
        raised = BackendError if error_kind(failures) == "backend" else UsageError
        raise raised(f"{len(failures)} of {count(len(chosen) * len(runner.sides), 'recording')} failed")


def compared(
    folder: Path, chosen: Sequence[Subject], runner: Runner, scratch: Path, report: Report, flags: Sequence[str] = ()
) -> Iterator[CaseResult]:
    """Compare each side of each chosen case or pair with its golden trace in `folder`.

    `flags` are those that changed the cases; the error for a missing trace repeats them in the command that records it.
    Raises TraceError, before anything is run, if a case has no golden trace at all.
    """
    golden = {subject.case.name: _golden(folder, subject) for subject in chosen}
    if missing := [subject for subject in chosen if not golden[subject.case.name]]:
        words = " ".join([*(shlex.quote(flag) for subject in missing for flag in subject.flags), *flags])
        raise TraceError(
            f"{folder} has no golden trace of {listed([subject.case.name for subject in missing], 1)}; "
            f"record it with: python -m parity.compare --golden={folder} --update-golden {words}"
        )
    wanted = [
        (subject, [side for side in subject.able(runner.sides) if side.name in golden[subject.case.name]])
        for subject in chosen
    ]
    for subject, answers in in_order(wanted, partial(_answers, scratch, folder), runner.at_once):
        name = subject.case.name
        for side, answer in answers.items():
            yield _compared(name, side, answer, golden[name][side], scratch / name / side, report)
        shutil.rmtree(scratch / name, ignore_errors=True)


def update(folder: Path, chosen: Sequence[Subject], runner: Runner) -> list[Answer]:
    """Record each side of each case in place of its golden trace; return answers that failed, whose traces stay."""
    failures = []
    with tempfile.TemporaryDirectory(dir=folder, prefix=".recording-") as scratch:
        wanted = [(subject, subject.able(runner.sides)) for subject in chosen]
        for subject, answers in in_order(wanted, partial(_answers, Path(scratch), None), runner.at_once):
            for side, answer in answers.items():
                name = f"{subject.case.name}/{side}"
                if answer.status == "done":
                    _move(Path(scratch) / name, folder / name, Path(scratch) / f"{name}.old")
                else:
                    failures.append(answer)
                outcome = f"{folder / name}  {answer.seconds:.1f} s" if answer.status == "done" else answer.message
                print(f"{subject.case.name}  {outcome}", flush=True)
    return failures


def _golden(folder: Path, subject: Subject) -> dict[str, Trace]:
    """Return the golden traces of a case by backend. Raises TraceError if one was recorded with other settings."""
    case, traces = subject.case, {}
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


def _answers(
    scratch: Path, golden: Path | None, wanted: tuple[Subject, Sequence[Side]]
) -> tuple[Subject, dict[str, Answer]]:
    """Record sides of a case below `scratch` at the same time; with `golden`, as candidates for the traces there.

    Keras is recorded only after torch where it reads torch's recording.
    """
    subject, sides = wanted
    answers: dict[str, Future[Answer]] = {}
    for side in sides:
        before = answers.get("torch") if subject.keras_needs_torch else None
        recorded = partial(subject.recorded, side, scratch / subject.case.name, golden)
        answers[side.name] = begun(partial(_after, before, side.name, recorded))
    return subject, {name: ended(answer) for name, answer in answers.items()}


def _after(torch: "Future[Answer] | None", name: str, recorded: Callable[[], Answer]) -> Answer:
    """Record one side, after torch if that is given, and not at all if torch has failed."""
    if torch and (status := ended(torch).status) != "done":
        return Answer(status=status, message=f"{name}: was not run, since torch failed")
    return recorded()


def _compared(case: str, name: str, answer: Answer, golden: Trace, own: Path, report: Report) -> CaseResult:
    """Compare one backend's new trace in `own` with its golden trace, and note what changed in the environment."""
    row = f"{case} ({name})"
    if answer.status != "done":
        return CaseResult(case=row, verdict="error", error=error_kind([answer]), reason=answer.message)
    try:
        candidate = Trace(own)
        result = examined(golden, candidate).result
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
