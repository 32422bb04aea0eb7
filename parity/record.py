"""python -m parity.record: one backend runs cases and leaves their traces in a folder."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from parity import cli
from parity.config.devices import obstacle
from parity.config.schema import Case
from parity.errors import BackendError, UsageError
from parity.pairs.compare import recorded
from parity.pairs.file import PairFile
from parity.runtime.backend import PACKAGES, Backend, running
from parity.runtime.hardware import crowded, missing
from parity.runtime.job import Answer, Job
from parity.trace import keys


def main(argv: Sequence[str]) -> int:
    """Returns the exit status: 0, or 3 if the backend failed on a case."""
    parser = cli.Parser(prog="parity.record", description=__doc__, epilog="Status: 0, 2 usage, 3 the backend failed.")
    parser.add_argument("--backend", required=True, choices=PACKAGES, help="the side to run")
    parser.add_argument("--out", required=True, type=Path, metavar="DIR", help="OUT/CASE/BACKEND receives each trace")
    cli.add_pair_files(parser)
    cli.add_case_flags(parser)
    args = parser.parse_args(argv)
    devices = cli.devices(args)
    chosen, pairs = cli.chosen_cases(args, devices), cli.pair_files(args, devices)
    cli.make_folder("--out", args.out)
    if absent := missing(devices, cli.pythons(args)):
        raise BackendError(absent)
    python = cli.pythons(args)[args.backend]
    with tempfile.TemporaryDirectory(prefix="parity-") as scratch:
        chosen = [case for case in chosen if not _skipped(case, crowded(case, devices, cli.pythons(args)))]
        failed = _record(Backend(args.backend, python, Path(scratch), devices.kind), [*chosen, *pairs], args.out)
    if failed:
        raise BackendError(f"{failed} of {len(chosen) + len(pairs)} cases failed")
    return 0


def _skipped(case: Case, reason: str) -> bool:
    """Whether a case cannot be run on these devices; if so that is said."""
    if reason := obstacle(case) or reason:
        print(f"{case.name}  skipped: {reason}", flush=True)
    return bool(reason)


def _record(backend: Backend, chosen: Sequence[Case | PairFile], out: Path) -> int:
    """Record the cases one after another; returns how many failed."""
    failed = 0
    with running([backend]):
        for each in chosen:
            name = each.case.name if isinstance(each, PairFile) else each.name
            folder = out / name / backend.name
            answer = _recorded(each, backend, out / name)
            if answer.status == "usage":
                raise UsageError(answer.message)
            failed += answer.status == "error"
            outcome = answer.message if answer.status == "error" else f"{folder}  {answer.seconds:.1f} s"
            print(f"{name}  {outcome}", flush=True)
    return failed


def _recorded(each: Case | PairFile, backend: Backend, folder: Path) -> Answer:
    if isinstance(each, Case):
        own = str((folder / backend.name).absolute())
        return backend.do(Job(case=each, runs=list(keys.RUNS), folder=own))
    try:
        return recorded(each, backend, folder)
    except BackendError as error:
        return Answer(status="error", message=str(error))


if __name__ == "__main__":
    cli.end("parity.record", main)
