"""The flags --repair and --reproduce of parity.compare, which follow up the divergence of a pair."""

import argparse
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from parity import cli
from parity.core.errors import MissingError, UsageError
from parity.pairs.file import PairFile
from parity.repair.reproduce import reproduce
from parity.results import CaseResult
from parity.runtime.runner import Worker
from parity.subjects.pair import FollowUp

NEEDED = "libcst"  # edits Python source; only --repair needs it


def add_flags(parser: cli.Parser) -> None:
    add = parser.add_argument
    add("--repair", type=Path, metavar="FILE", help="find the edits of a pair's port that make it match, as a diff")
    add("--reproduce", type=Path, metavar="DIR", help="write the module that diverges first as a script for each side")


def check(parser: cli.Parser, args: argparse.Namespace) -> None:
    """Exit with status 2 if other flags contradict these. Raises UsageError for paths, MissingError for a package."""
    for flag in ("repair", "reproduce"):
        if getattr(args, flag) and (args.golden or args.traces or args.case or len(args.pair) + bool(args.torch) != 1):
            parser.error(f"--{flag} is for one pair: it needs one --pair=FILE.toml, or --torch, --keras and --input")
    if args.reproduce:
        cli.make_folder("--reproduce", args.reproduce)
    if args.repair:
        if find_spec(NEEDED) is None:
            raise MissingError(f"--repair needs {NEEDED}: pip install 'framework-parity[repair]'")
        try:
            args.repair.write_bytes(b"")
        except OSError as error:
            raise UsageError(f"--repair={args.repair}: cannot be written: {error.strerror}") from None


def follow_up(args: argparse.Namespace, scratch: Path) -> FollowUp | None:
    """Return what is to be done with a pair that diverged; None if the flags ask for nothing."""
    if not args.repair and not args.reproduce:
        return None

    def follow(file: PairFile, result: CaseResult, sides: Sequence[Worker], folder: Path) -> None:
        if args.reproduce and result.verdict != "match":
            result.reproduced = reproduce(file, result, folder, args.reproduce, cli.pythons(args))
        if args.repair and result.verdict != "match":
            from parity.repair.search import Repairing  # needs a package that other commands do without

            result.repair = Repairing(file, sides, scratch / "repair", args.vary).run(result, folder, args.repair)

    return follow
