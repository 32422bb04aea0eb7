"""Run cases, pairs or a training script on one backend and keep their traces, e.g. to compare them elsewhere or later.

python -m parity.record --out=before -- train.py --epochs=1
python -m parity.record --out=after --like=before -- train.py --epochs=1 --fused
python -m parity.compare before after
"""

from parity.core import process
from parity.core.wording import count

if __name__ == "__main__":
    process.end_at_once("parity.record")  # the imports below take seconds; Ctrl-C must end them without a traceback

import argparse
import shlex
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from parity import cli
from parity.config.devices import obstacle
from parity.core.errors import BackendError, UsageError
from parity.core.script import framework, is_script
from parity.pairs.file import of_script
from parity.results import error_kind
from parity.runtime.backend import PACKAGES, Backend, running
from parity.runtime.job import Answer
from parity.runtime.resources import crowded, missing
from parity.subjects import Subject
from parity.subjects.run import BuiltIn, RecordedScript, UserPair
from parity.trace.manifest import Trace, find


def main(argv: Sequence[str], program: str = "parity.record") -> int:
    """Record what the flags choose, and return the exit status 0.

    Raises BackendError if the backend failed on a case, MissingError if it is not installed, and UsageError if a flag,
    a case or a pair cannot be used.
    """
    args = _parse(argv, program)
    devices = cli.devices(args)
    scripts = [_script(args)] if args.script else []
    chosen = [] if scripts else cli.chosen_cases(args, devices)
    pairs, wrong = cli.pair_files(args, devices)
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
            for subject in (*subjects, *map(UserPair, pairs), *scripts):
                name = subject.case.name
                answers[name] = subject.recorded(backend, args.out / name)
                _tell(name, answers[name], args.out / name / backend.name)
    failures = {name: answer for name, answer in answers.items() if answer.status != "done"}
    if not failures:
        return 0
    raised = BackendError if error_kind(failures.values()) == "backend" else UsageError
    raise raised(f"{len(failures)} of {count(len(answers), 'case')} failed: {', '.join(failures)}")


def _parse(argv: Sequence[str], program: str) -> argparse.Namespace:
    epilog = "Exit status: 0 everything was recorded; 2 a flag or config is wrong; 3 the backend failed."
    parser = cli.Parser(
        prog=program, description=__doc__, epilog=epilog, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("script", nargs="*", metavar="-- SCRIPT.py", help="a training script and its arguments, which begin behind --")
    add("--backend", choices=PACKAGES, help="the framework to run; of a script it is the one that it imports")
    add("--out", type=Path, metavar="DIR", help="write each trace to DIR/CASE/BACKEND")
    like = "begin with the weights of a script's earlier recording, and train on its batches"
    add("--like", type=Path, metavar="DIR", help=like)
    cli.add_runs(parser)
    args = parser.parse_args(argv)
    _check(parser, args)
    return args


def _check(parser: cli.Parser, args: argparse.Namespace) -> None:
    """Complete the backend of a script; exit with status 2 if flags contradict each other."""
    needed = {"--backend": args.backend or args.script, "--out": args.out}
    if missing_flags := [flag for flag, given in needed.items() if not given]:
        parser.error(f"the following arguments are required: {', '.join(missing_flags)}")
    if args.script and not is_script(args.script[0]):
        parser.error(f"unrecognized arguments: {shlex.join(args.script)}")
    if args.script and (args.case or args.all or args.pair or args.set):
        parser.error("a script is recorded alone: it takes none of --case, --all, --pair and --set")
    if args.like and (args.steps or args.seed is not None or not args.script):
        parser.error(
            "--like=DIR is for a script, of which it tells steps and seed: it takes neither --steps nor --seed"
        )
    if args.like and args.like.resolve() == args.out.resolve():
        parser.error(f"--out and --like both name {args.out}; expected another folder for the second recording")
    if args.script and not args.backend:
        args.backend = framework(shlex.join(args.script), [str(Path.cwd())])


def _script(args: argparse.Namespace) -> Subject:
    """Return the script that is recorded. Raises UsageError and TraceError."""
    fields = {name: getattr(args, name) for name in ("precision", "steps", "every", "seed")}
    file = of_script(shlex.join(args.script), args.backend, **fields)
    if not args.like:
        return RecordedScript(file)
    earlier = [trace for trace in map(Trace, find(args.like)) if trace.backend == args.backend and trace.manifest.side]
    earlier = [trace for trace in earlier if trace.case.name == file.case.name] or earlier
    if len(earlier) != 1:
        raise UsageError(f"--like={args.like}: holds {count(len(earlier), 'script')} of {args.backend}, expected one")
    return RecordedScript(file._replace(case=earlier[0].case), earlier[0].folder.parent)


def _tell(name: str, answer: Answer, folder: Path) -> None:
    """Print how a recording ended; mistakes of the user go to stderr, as in the other programs."""
    outcome = f"{folder}  {answer.seconds:.1f} s" if answer.status == "done" else answer.message
    print(f"{name}  {outcome}", flush=True, file=sys.stderr if answer.status == "usage" else sys.stdout)


if __name__ == "__main__":
    cli.end("parity.record", main)
