"""Record one side of a case or pair into a certificate: one file, by which a port is judged where only it is installed.

`python -m parity.compare --certificate=FILE` judges by it.
"""

from parity.core import process

if __name__ == "__main__":
    process.end_at_once("parity.certify")  # the imports below take seconds; Ctrl-C must end them without a traceback

import argparse
import datetime
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from parity import cli
from parity.config.devices import obstacle
from parity.core.errors import BackendError, UsageError
from parity.core.wording import count
from parity.pairs.recording import pack
from parity.results import CaseResult, Report
from parity.runtime.backend import PACKAGES, Backend, running
from parity.runtime.resources import WITHOUT_GPU, available, missing
from parity.runtime.runner import Runner
from parity.subjects import Subject
from parity.subjects.certified import judged_by
from parity.subjects.run import BuiltIn, UserPair
from parity.trace import certificate
from parity.trace.certificate import Recording
from parity.trace.manifest import Trace

FIRST = "first recording"
OTHER: Final = {"torch": "keras", "keras": "torch"}


def main(argv: Sequence[str], program: str = "parity.certify") -> int:
    """Record the certificate that the flags describe, and return the exit status 0.

    Raises BackendError if the backend failed, MissingError if it is absent, UsageError if a flag or pair is unusable.
    """
    args = _parse(argv, program)
    devices = cli.devices(args)
    subject = _subject(args)
    if args.out.exists() and not args.update:
        raise UsageError(
            f"{args.out}: exists already; to record it anew, add --update and --reason=TEXT, which is kept in it"
        )
    history = certificate.read(args.out)[0].history if args.out.exists() else []
    commit = _commit(args.pair[0].absolute().parent, args.out) if args.pair else ""
    if absent := missing(devices, cli.pythons(args)):
        raise BackendError(absent)
    with tempfile.TemporaryDirectory(prefix="parity-") as scratch:
        folder = Path(scratch) / subject.case.name
        backend = Backend(args.backend, cli.pythons(args)[args.backend], Path(scratch), devices.kind, args.timeout)
        with running([backend]):
            answer = subject.recorded(backend, folder, summarises=True)
        answer.check()
        trace = Trace(folder / backend.name)
        if isinstance(subject, UserPair):
            pack(subject.file, trace.folder)
        today = datetime.datetime.now(datetime.UTC).date().isoformat()
        recording = Recording(date=today, commit=commit, versions=trace.manifest.versions, reason=args.reason or FIRST)
        head = certificate.described(trace, f"python -m parity.compare {subject.again}", [*history, recording])
        size = certificate.write(trace.folder, args.out, head)
    print(
        f"{args.out}  {size / 1e6:.2f} MB  {args.backend}'s half of {subject.case.name}: "
        f"{count(head.tensors, 'tensor')}, {head.summarised} of them as summaries",
        flush=True,
    )
    return 0


def add_flags(parser: cli.Parser) -> None:
    text = "judge one side alone by what parity.certify recorded of the other; --keras or --torch name its builder"
    parser.add_argument("--certificate", type=Path, metavar="FILE", help=text)


def check(parser: cli.Parser, args: argparse.Namespace) -> None:
    """Exit with status 2 if other flags contradict `--certificate`."""
    chooses = args.case or args.all or args.input or args.keep or args.golden or args.traces or cli.training_flags(args)
    if args.certificate and chooses:
        parser.error(
            "--certificate=FILE holds the case with all its settings: it takes no flags that choose or change cases, "
            "but --pair=FILE.toml for how Keras's half of a pair is built and read"
        )
    if args.certificate and (bool(args.torch) + bool(args.keras) + len(args.pair) > 1):
        parser.error("--certificate=FILE judges one side: it takes one of --keras, --torch and --pair")


def judged(args: argparse.Namespace, scratch: Path, report: Report) -> Iterator[CaseResult]:
    """Judge the side that the flags name by the certificate. Raises UsageError and TraceError."""
    head, _ = certificate.read(args.certificate)
    name = "torch" if args.torch else "keras" if args.keras or args.pair else OTHER[head.side]
    python = {"torch": args.torch_python, "keras": args.keras_python}[name]
    kind = available({name: python}).kind
    port = cli.usable_pairs(args, WITHOUT_GPU)[0] if args.pair else None  # tells of Keras's half
    with Runner.of({name: python}, scratch, kind, args.timeout) as runner:
        (side,) = runner.sides
        result = judged_by(args.certificate, side, scratch, args.torch or args.keras, port, report)
        result.command = report.command
        yield result


def _parse(argv: Sequence[str], program: str) -> argparse.Namespace:
    epilog = "Exit status: 0 the certificate was written; 2 a flag or config is wrong; 3 the backend failed."
    parser = cli.Parser(prog=program, description=__doc__, epilog=epilog)
    add = parser.add_argument
    add("--backend", default="torch", choices=PACKAGES, help="the framework to record (default torch)")
    add("--out", required=True, type=Path, metavar="FILE", help="the certificate, e.g. bert.parity")
    add("--update", action="store_true", help="record a certificate that exists anew; needs --reason")
    add("--reason", default="", metavar="TEXT", help="why it is recorded; it is kept in the certificate's history")
    cli.add_runs(parser)
    args = parser.parse_args(argv)
    if args.update and not args.reason.strip():
        parser.error("--update needs --reason=TEXT: why the reference is another now")
    if args.pair and args.backend == "keras":
        parser.error("a pair's certificate is that of its reference: leave out --backend=keras")
    return args


def _subject(args: argparse.Namespace) -> Subject:
    """Return the case or pair that the flags choose. Raises UsageError unless it is a single one that can be run."""
    devices = cli.devices(args)
    pairs, chosen = cli.usable_pairs(args, devices), cli.chosen_cases(args, devices)
    subjects: list[Subject] = [*(BuiltIn(case, cli.training_flags(args)) for case in chosen), *map(UserPair, pairs)]
    if len(subjects) != 1 or not (args.case or args.pair):
        raise UsageError(f"a certificate is of one case: received {len(subjects)}, expected --case=NAME or --pair=FILE")
    (subject,) = subjects
    if reason := obstacle(subject.case) or subject.case.distribution.side_obstacle(args.backend):
        raise UsageError(f"{subject.case.name}: {reason}")
    return subject


def _commit(folder: Path, out: Path) -> str:
    """Return the commit of the code in a folder, or "" outside of a repository.

    Raises UsageError if files of the repository have been changed since, or Python and TOML files are not part of it.
    Certificates, which end as `out` does, are no code.
    """
    commit = _git(folder, "rev-parse", "HEAD")
    root = _git(folder, "rev-parse", "--show-toplevel")
    if not commit or not root:
        return ""
    changed = []
    for line in _git(folder, "status", "--porcelain", "--untracked-files=all").splitlines():
        state, name = line[:2], line[3:].strip('"')
        if (state != "??" or name.endswith((".py", ".toml"))) and Path(name).suffix != out.suffix:
            changed.append(name)
    if changed:
        raise UsageError(
            f"{root}: {count(len(changed), 'file')} changed since the last commit, e.g. {changed[0]}, so that nobody "
            "could tell what was recorded; commit them first"
        )
    return commit


def _git(folder: Path, *words: str) -> str:
    """Return what git prints, or "" where it fails or is not installed."""
    try:
        return subprocess.run(["git", "-C", folder, *words], capture_output=True, text=True).stdout.rstrip("\n")
    except OSError:
        return ""


if __name__ == "__main__":
    cli.end("parity.certify", main)
