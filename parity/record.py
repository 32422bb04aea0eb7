"""python -m parity.record: one backend runs cases and leaves their traces in a folder."""

from parity.core import signals

if __name__ == "__main__":
    signals.end_at_once("parity.record")  # the imports below take long

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from parity import cli
from parity.config.devices import obstacle
from parity.config.schema import Case
from parity.core.errors import BackendError, UsageError
from parity.pairs.compare import recorded
from parity.pairs.file import PairFile
from parity.results import error_kind
from parity.runtime import resources
from parity.runtime.backend import PACKAGES, Backend, running
from parity.runtime.hardware import crowded, missing
from parity.runtime.job import Answer, Job
from parity.trace import keys


def main(argv: Sequence[str]) -> int:
    """Returns the exit status 0. Raises BackendError if the backend failed on a case, UsageError for mistakes."""
    parser = cli.Parser(prog="parity.record", description=__doc__, epilog="Status: 0, 2 usage, 3 the backend failed.")
    parser.add_argument("--backend", required=True, choices=PACKAGES, help="the side to run")
    parser.add_argument("--out", required=True, type=Path, metavar="DIR", help="OUT/CASE/BACKEND receives each trace")
    cli.add_pair_files(parser)
    cli.add_case_flags(parser)
    cli.add_timeout(parser)
    args = parser.parse_args(argv)
    devices = cli.devices(args)
    chosen, (pairs, wrong) = cli.chosen_cases(args, devices), cli.pair_files(args, devices)
    cli.make_folder("--out", args.out)
    if absent := missing(devices, cli.pythons(args)):
        raise BackendError(absent)
    python = cli.pythons(args)[args.backend]
    with tempfile.TemporaryDirectory(prefix="parity-") as scratch:
        chosen = [case for case in chosen if not _skipped(case, crowded(case, devices, cli.pythons(args)))]
        answers = {error.case: Answer(status="usage", message=str(error)) for error in wrong}
        for name, answer in answers.items():
            _tell(name, answer, args.out)
        backend = Backend(args.backend, python, Path(scratch), devices.kind, args.timeout)
        answers |= _record(backend, [*chosen, *pairs], args.out)
    return _status(answers)


def _status(answers: dict[str, Answer]) -> int:
    """Raises BackendError where the backend failed on a case, else UsageError where a case could not be used."""
    failures = {name: answer for name, answer in answers.items() if answer.status != "done"}
    if not failures:
        return 0
    raised = BackendError if error_kind(failures.values()) == "backend" else UsageError
    raise raised(f"{len(failures)} of {len(answers)} cases failed: {', '.join(failures)}")


def _skipped(case: Case, reason: str) -> bool:
    """Whether a case cannot be run on these devices; if so that is said."""
    if reason := obstacle(case) or reason:
        print(f"{case.name}  skipped: {reason}", flush=True)
    return bool(reason)


def _record(backend: Backend, chosen: Sequence[Case | PairFile], out: Path) -> dict[str, Answer]:
    """Record the cases one after another; returns how each ended, by name."""
    answers = {}
    with running([backend]):
        for each in chosen:
            name = each.case.name if isinstance(each, PairFile) else each.name
            answers[name] = _recorded(each, backend, out / name)
            _tell(name, answers[name], out / name / backend.name)
    return answers


def _tell(name: str, answer: Answer, folder: Path) -> None:
    """Print how a recording ended; what the user has to mend goes to stderr, as everywhere."""
    outcome = f"{folder}  {answer.seconds:.1f} s" if answer.status == "done" else answer.message
    print(f"{name}  {outcome}", flush=True, file=sys.stderr if answer.status == "usage" else sys.stdout)


def _recorded(each: Case | PairFile, backend: Backend, folder: Path) -> Answer:
    try:
        if isinstance(each, PairFile):
            return recorded(each, backend, folder)
        resources.check(each, resources.of_case(each), folder, keys.RUNS)
        return backend.do(Job(case=each, runs=list(keys.RUNS), folder=str((folder / backend.name).absolute())))
    except BackendError as error:
        return Answer(status="error", message=str(error))
    except UsageError as error:
        return Answer(status="usage", message=str(error))


if __name__ == "__main__":
    cli.end("parity.record", main)
