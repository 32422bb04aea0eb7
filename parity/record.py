"""Run cases or pairs on one backend and keep their traces in a folder, e.g. to compare them on another machine."""

from parity.core import process
from parity.core.wording import count

if __name__ == "__main__":
    process.end_at_once("parity.record")  # the imports below take seconds; Ctrl-C must end them without a traceback

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from parity import cli
from parity.config.devices import obstacle
from parity.core.errors import BackendError, UsageError
from parity.results import error_kind
from parity.runtime.backend import PACKAGES, Backend, running
from parity.runtime.job import Answer
from parity.runtime.resources import crowded, missing
from parity.subjects import Subject
from parity.subjects.run import BuiltIn, UserPair


def main(argv: Sequence[str], program: str = "parity.record") -> int:
    """Record what the flags choose, and return the exit status 0.

    Raises BackendError if the backend failed on a case, MissingError if it is not installed, and UsageError if a flag,
    a case or a pair cannot be used.
    """
    epilog = "Exit status: 0 everything was recorded; 2 a flag or config is wrong; 3 the backend failed."
    parser = cli.Parser(prog=program, description=__doc__, epilog=epilog)
    parser.add_argument("--backend", required=True, choices=PACKAGES, help="the framework to run")
    parser.add_argument("--out", required=True, type=Path, metavar="DIR", help="write each trace to DIR/CASE/BACKEND")
    cli.add_runs(parser)
    args = parser.parse_args(argv)
    devices = cli.devices(args)
    chosen, (pairs, wrong) = cli.chosen_cases(args, devices), cli.pair_files(args, devices)
    cli.make_folder("--out", args.out)
    if absent := missing(devices, cli.pythons(args)):
        raise BackendError(absent)
    python = cli.pythons(args)[args.backend]
    with tempfile.TemporaryDirectory(prefix="parity-") as scratch:
        subjects: list[Subject] = []
        for case in chosen:
            side_obstacle = case.distribution.side_obstacle(args.backend)
            if reason := obstacle(case) or side_obstacle or crowded(case, devices, cli.pythons(args)):
                print(f"{case.name}  skipped: {reason}", flush=True)
            else:
                subjects.append(BuiltIn(case))
        answers = {error.case: Answer(status="usage", message=str(error)) for error in wrong}
        for name, answer in answers.items():
            _tell(name, answer, args.out)
        backend = Backend(args.backend, python, Path(scratch), devices.kind, args.timeout)
        with running([backend]):
            for subject in (*subjects, *map(UserPair, pairs)):
                name = subject.case.name
                answers[name] = subject.recorded(backend, args.out / name)
                _tell(name, answers[name], args.out / name / backend.name)
    failures = {name: answer for name, answer in answers.items() if answer.status != "done"}
    if not failures:
        return 0
    raised = BackendError if error_kind(failures.values()) == "backend" else UsageError
    raise raised(f"{len(failures)} of {count(len(answers), 'case')} failed: {', '.join(failures)}")


def _tell(name: str, answer: Answer, folder: Path) -> None:
    """Print how a recording ended; mistakes of the user go to stderr, as in the other programs."""
    outcome = f"{folder}  {answer.seconds:.1f} s" if answer.status == "done" else answer.message
    print(f"{name}  {outcome}", flush=True, file=sys.stderr if answer.status == "usage" else sys.stdout)


if __name__ == "__main__":
    cli.end("parity.record", main)
