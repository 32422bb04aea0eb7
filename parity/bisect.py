"""Find the first released version of a package with which a pair computes something else than with an earlier version.

One framework's half of the pair is run with the version --good and with later ones, as two sides of one model. They are
installed in a folder that is kept, with what was found of each, so that a search that was stopped goes on where it was.
"""

from parity.core import process

if __name__ == "__main__":
    process.end_at_once("parity.bisect")  # the imports below take seconds; Ctrl-C must end them without a traceback

import argparse
import contextlib
import functools
import hashlib
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path

import msgspec

from parity import cli
from parity.config.devices import Kind
from parity.core.errors import UsageError
from parity.core.wording import count, listed
from parity.pairs.file import PairFile
from parity.report import ci, output, terminal
from parity.results import CaseResult, Report, Result
from parity.runtime.environment import Releases
from parity.subjects.sides import Versions

EPILOG = """Exit status: 0 both versions compute the same; 1 a version differs, or nothing could be decided; 2 a flag, a
version or the pair's file is wrong; 3 a backend failed."""
FRAMEWORKS = {"torch": ["torch"], "keras": ["keras"], "tensorflow": ["keras"]}  # by package
SIDES = ["bisected-good", "bisected-bad"]  # of which the pair is read


class Tried(Result):
    """What was found of a version; `reason`: why it was skipped."""

    version: str
    verdict: str
    seconds: float = 0.0
    reason: str = ""


class Bisection(Result, kw_only=True):
    """The JSON file: the first version that differs, those just before it that were skipped, and the report on it."""

    schema: int = 1
    package: str
    good: str
    bad: str
    first: str | None = None
    skipped: Sequence[str] = ()
    tried: list[Tried] = []
    report: Report


def main(argv: Sequence[str], program: str = "parity.bisect") -> int:
    """Run the search that the flags describe, called as `program`, and return the exit status."""
    args = _parse(argv, program)
    report = Report(command=cli.command_line(program, argv))
    bisection = Bisection(package=args.package, good=args.good, bad=args.bad, report=report)
    printed = terminal.Printed(sys.stderr if args.json == "-" else sys.stdout, layouts=False)
    with (
        output.written(args, report, {"markdown": lambda: ci.comparison(report)}, lambda: bisection),
        tempfile.TemporaryDirectory(prefix="parity-") as scratch,
    ):
        _search(args, bisection, printed, Path(scratch))
    printed.end(report)
    return report.status(args.strict)


def first_that_differs(versions: Sequence[str], differs: Callable[[str], bool | None]) -> tuple[str, Sequence[str]]:
    """Return the first of some versions that differs, and those just before it of which that is not known.

    The last one differs. `differs` returns None for a version that cannot be compared.
    """
    low, high, skipped = 0, len(versions) - 1, set[int]()  # the first is one of those from low to high
    while candidates := [number for number in range(low, high) if number not in skipped]:
        middle = candidates[len(candidates) // 2]
        if (answer := differs(versions[middle])) is None:
            skipped.add(middle)
        elif answer:
            high = middle
        else:
            low = middle + 1
    return versions[high], versions[low:high]


class _Trials:
    """The versions that are compared with the good one; what earlier searches have found is kept in a file."""

    def __init__(self, versions: Versions, file: Path) -> None:
        self._file = file
        self.result: Callable[[str], CaseResult] = functools.cache(versions.compared)  # the comparison of a version
        self._kept: dict[str, Tried] = {}
        with contextlib.suppress(OSError, msgspec.MsgspecError):  # there is none, or it was written otherwise
            self._kept = msgspec.json.decode(file.read_bytes(), type=dict[str, Tried])

    def outcome(self, version: str) -> Tried:
        """Compare a version, unless that is known, and keep what is found."""
        if version in self._kept:
            return msgspec.structs.replace(self._kept[version], reason="(kept from an earlier search)")
        start = time.monotonic()
        result = self.result(version)
        outcome = Tried(version=version, verdict=result.verdict, seconds=round(time.monotonic() - start, 1))
        if result.verdict == "error":
            outcome.verdict, outcome.reason = "skipped", result.reason.splitlines()[-1].strip()
        else:
            self._kept[version] = outcome
            self._file.parent.mkdir(exist_ok=True)
            self._file.write_bytes(msgspec.json.encode(self._kept))
        return outcome


def _search(args: argparse.Namespace, bisection: Bisection, printed: terminal.Printed, scratch: Path) -> None:
    """Print a line for each version that is tried, and add the comparison of the first that differs to the report.

    Raises UsageError, BackendError and MissingError.
    """
    kind, file, port = _pair(args)
    releases = Releases(args.package, args.cache)
    bisection.bad = args.bad or releases.installed
    candidates = releases.between(bisection.good, bisection.bad)
    versions = Versions(file, port, releases, bisection.good, scratch, kind, args.timeout)
    trials = _Trials(versions, args.cache / "verdicts" / f"{_digest(args, file)}.json")

    def differs(version: str) -> bool | None:
        bisection.tried.append(last := trials.outcome(version))
        line = f"{args.package} {version:<10} {last.verdict:<12} {last.seconds:5.1f} s  {last.reason}"
        printed.console.print(line.rstrip(), soft_wrap=True)
        undecided = last.verdict in ("skipped", "inconclusive")
        return None if undecided else last.verdict == "diverged" or (args.strict and last.verdict == "subprecision")

    chosen, answer = bisection.bad, differs(bisection.bad)
    said = f"{'computes the same as' if answer is False else 'could not be compared with'} {bisection.good}"
    if answer:
        chosen, bisection.skipped = first_that_differs(candidates, differs)
        bisection.first = chosen
        skipped = f", unless one that was skipped does: {listed(bisection.skipped, 4)}" if bisection.skipped else ""
        said = f"is the first that differs from {bisection.good}{skipped}"
    printed.console.print(f"{args.package} {chosen} {said}", soft_wrap=True)
    result, report = trials.result(chosen), bisection.report
    if result.verdict != "error":
        versions.explain(result, chosen, report)
    result.command = report.command
    report.add(result)
    printed.names = [result.case]
    printed.add(result)


def _pair(args: argparse.Namespace) -> tuple[Kind, PairFile, PairFile | None]:
    """Return the kind of devices, the pair with sides of the framework that is run, and the pair with both halves.

    The latter is None where it has one half. Raises UsageError.
    """
    errors: list[UsageError] = []
    for framework in [args.framework] if args.framework else FRAMEWORKS.get(args.package, ["keras", "torch"]):
        sided = argparse.Namespace(**{**vars(args), "sides": SIDES})
        sided.set = [*args.set, *(f"sides.{side}.framework={framework}" for side in SIDES)]
        devices = cli.devices(sided)
        files, wrong = cli.pair_files(sided, devices, runs_scripts=True)
        if files:
            ports, _ = cli.pair_files(args, devices, runs_scripts=True)
            return devices.kind, files[0], next(iter(ports), None)
        errors += wrong
    raise errors[0]


def _digest(args: argparse.Namespace, file: PairFile) -> str:
    """Return a digest of all that the verdicts depend on, as far as it is known: code that lies deeper is not."""
    others = {f"{each.name}=={each.version}" for each in metadata.distributions() if each.name != args.package}
    said = [sys.version, args.package, args.good, file.sides[0].framework, *cli.training_flags(args), *sorted(others)]
    digest = hashlib.sha256(repr(said).encode())
    code = {path for folder in file.search for glob in ("*.py", "*/*.py") for path in Path(folder).glob(glob)}
    for path in [args.pair[0], *sorted(filter(Path.is_file, code))]:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:24]


def _parse(argv: Sequence[str], program: str) -> argparse.Namespace:
    parser = cli.Parser(prog=program, description=__doc__, epilog=EPILOG)
    add = parser.add_argument
    add("--package", required=True, metavar="NAME", help="keras, tensorflow, torch, or another that the pair imports")
    add("--good", required=True, metavar="VERSION", help="a version with which the pair computes what it should")
    add("--bad", default="", metavar="VERSION", help="a later one with which it does not (default: the installed one)")
    add("--pair", required=True, action="append", type=Path, metavar="FILE.toml", help="the pair file")
    add("--framework", choices=["torch", "keras"], help="whose half of the pair is run (default: that of the package)")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "parity" / "bisect"
    add("--cache", type=Path, default=cache, metavar="DIR", help=f"keeps versions and verdicts (default {cache})")
    cli.add_training_flags(parser)
    cli.add_timeout(parser)
    add("--strict", action="store_true", help="count also differences that float32 cannot see")
    output.add_flags(parser, "the result")
    parser.set_defaults(torch_python="", keras_python="", sides=[])
    args = parser.parse_args(argv)
    if len(args.pair) > 1:
        parser.error(f"received {count(len(args.pair), 'pair')}, expected one")
    output.check(args)
    args.cache = args.cache.absolute()
    cli.make_folder("--cache", args.cache)
    return args


if __name__ == "__main__":
    cli.end("parity.bisect", main)
