"""python -m parity.record: one backend runs cases and leaves their traces in a folder."""

from collections.abc import Sequence
from pathlib import Path

from parity import cli
from parity.errors import BackendError, UsageError
from parity.runtime.backend import PACKAGES, Backend, running
from parity.runtime.job import Job
from parity.trace import keys


def main(argv: Sequence[str]) -> int:
    """Returns the exit status: 0, or 3 if the backend failed on a case."""
    parser = cli.Parser(prog="parity.record", description=__doc__, epilog="Status: 0, 2 usage, 3 the backend failed.")
    parser.add_argument("--backend", required=True, choices=PACKAGES, help="the side to run")
    parser.add_argument("--out", required=True, type=Path, metavar="DIR", help="OUT/CASE/BACKEND receives each trace")
    cli.add_case_flags(parser)
    args = parser.parse_args(argv)
    chosen = cli.chosen_cases(args)
    try:
        args.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--out={args.out}: expected a folder that can be written to: {error}") from None
    backend = Backend(args.backend, args.torch_python if args.backend == "torch" else args.keras_python, args.out)
    failed = 0
    with running([backend]):
        for case in chosen:
            folder = args.out / case.name / args.backend
            answer = backend.do(Job(case=case, runs=list(keys.RUNS), folder=str(folder.absolute())))
            if answer.status == "usage":
                raise UsageError(answer.message)
            failed += answer.status == "error"
            outcome = answer.message if answer.status == "error" else f"{folder}  {answer.seconds:.1f} s"
            print(f"{case.name}  {outcome}", flush=True)
    if failed:
        raise BackendError(f"{failed} of {len(chosen)} cases failed; {backend.log} has all that {args.backend} said")
    backend.log.unlink(missing_ok=True)
    return 0


if __name__ == "__main__":
    cli.end("parity.record", main)
