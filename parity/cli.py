"""Command-line flags and exit handling that all `python -m parity.*` programs share.

A user's mistake ends a program with one line on stderr and status 2, never with a traceback.
"""

import argparse
import errno
import fnmatch
import math
import os
import shlex
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn, get_args

from absl.flags import argparse_flags

from parity.config import cases, schema
from parity.config.devices import Devices, parse
from parity.core import process
from parity.core.errors import BackendError, MissingError, PairError, UsageError, nearest
from parity.pairs import file as pairs
from parity.pairs.file import PairFile
from parity.runtime.backend import PATIENCE
from parity.runtime.resources import WITHOUT_GPU, available

FAILED = (errno.EBADF, errno.EIO, errno.ENOSPC, errno.EPIPE)  # what writing to a stream raises
UNREAD = 141  # 128 + SIGPIPE: what a shell reports for a program whose output pipe was closed by its reader
TRAINING = ("devices", "precision", "steps", "every", "seed")  # flags that change fields of a case, beside --set


class Parser(argparse_flags.ArgumentParser):
    """Argument parser that reports an error in one line, with the valid flag nearest to a mistyped one."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(inherited_absl_flags=None, allow_abbrev=False, **kwargs)  # type: ignore[no-untyped-call]

    def error(self, message: str) -> NoReturn:
        """Print the message on stderr and exit with status 2."""
        flags = [flag for action in self._actions for flag in action.option_strings]
        unknown = message.partition("unrecognized arguments: ")[2].split("=")[0].split(" ")[0]
        hint = nearest(unknown, flags) if unknown.startswith("-") else ""
        if "--pair" in flags and (flag := pair_flag(unknown)):
            hint = f"; for this pair's file, write {flag}"
        self.exit(2, f"{self.prog}: {message}{hint}; --help lists the flags\n")


def add_cases(parser: argparse.ArgumentParser, glob: Callable[[str], str] = str) -> None:
    """Add the flags that choose built-in cases; `glob` parses a value of --case."""
    add = parser.add_mutually_exclusive_group().add_argument
    add("--case", action="append", default=[], type=glob, metavar="GLOB", help="e.g. 'transformer/*' (repeatable)")
    add("--all", action="store_true", help="all built-in cases")


def add_subjects(parser: argparse.ArgumentParser) -> None:
    """Add the flags that choose what is run: built-in cases, and files that describe a user's own two models."""
    add_cases(parser, _glob)
    text = "pair file: your own PyTorch and Keras model (repeatable)"
    parser.add_argument("--pair", action="append", default=[], type=Path, metavar="FILE.toml", help=text)


def pair_flag(word: str) -> str:
    """Return the flag for the pair's file that FILE.toml, or NAME or pair/NAME, stands for; "" if there is none."""
    file = word if word.endswith(".toml") else f"{word.removeprefix('pair/')}.toml"
    return f"--pair={shlex.quote(file)}" if word and (word == file or os.path.isfile(file)) else ""


def _glob(text: str) -> str:
    """Return a value of --case, unless it stands for a pair's file."""
    if not fnmatch.filter(cases.names(), text) and (flag := pair_flag(text)):
        raise argparse.ArgumentTypeError(f"no built-in case matches {text!r}; for this pair's file, write {flag}")
    return text


def add_pythons(parser: argparse.ArgumentParser) -> None:
    """Add the flags that name each side's Python interpreter."""
    add = parser.add_argument
    add("--torch-python", default="", metavar="PYTHON", help="the interpreter for the PyTorch side")
    add("--keras-python", default="", metavar="PYTHON", help="the interpreter for the Keras side")


def add_timeout(parser: argparse.ArgumentParser) -> None:
    """Add `--timeout`, the time after which a process that makes no progress counts as hung."""
    text = f"stop a process that has recorded nothing for this long (default {PATIENCE:.0f})"
    parser.add_argument("--timeout", type=seconds, default=PATIENCE, metavar="SECONDS", help=text)


def add_training_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that override how cases are trained."""
    add = parser.add_argument
    add("--devices", metavar="auto|cpu:N|gpu:N", help="logical devices (default auto: the GPUs, or else cpu:2)")
    add("--precision", choices=get_args(schema.Precision), help="the run precision beside float64 (default float32)")
    add("--steps", type=count, metavar="N", help="training steps (default 5)")
    between = "between the first and the last step, record losses and gradients every N steps"
    add("--every", type=count, metavar="N", help=between)
    add("--seed", type=int, help="seed of the initial weights, the data and the sample order (default 0)")
    add("--set", action="append", default=[], metavar="A.B=C", help="override any field of a case (repeatable)")


def add_runs(parser: argparse.ArgumentParser) -> None:
    """Add the flags of a program that runs cases and pairs: which of them, how they are trained, and by what."""
    add_subjects(parser)
    add_training_flags(parser)
    add_pythons(parser)
    add_timeout(parser)


def pair_files(
    args: argparse.Namespace, on: Devices, runs_scripts: bool = False
) -> tuple[list[PairFile], list[PairError]]:
    """Return the pairs that the flags name, with `--pair` or with `--torch` and `--keras`, and the errors of others.

    Those are files that are readable TOML but describe no valid pair, or one of scripts unless the program
    `runs_scripts`.
    Raises UsageError for invalid flags, for two pairs of one name, and for a file that cannot be read.
    """
    fields = _fields(args, on)
    files: list[PairFile] = []
    errors: list[PairError] = []
    for path in args.pair:
        try:
            file = pairs.load(path, args.set, getattr(args, "sides", []), **fields)
            files.append(file if runs_scripts else file.without_scripts())
        except PairError as error:  # reported as this pair's result; the other pairs are still compared
            errors.append(error)
    if getattr(args, "torch", ""):
        files.append(pairs.from_flags(args.torch, args.keras, args.input, **fields))
    names = [*(file.case.name for file in files), *(error.case for error in errors)]
    if twice := [name for name in names if names.count(name) > 1]:
        raise UsageError(f"received two pairs named {twice[0]!r}; give each pair a name of its own")
    return files, errors


def usable_pairs(args: argparse.Namespace, on: Devices) -> list[PairFile]:
    """Return the pairs that the flags name. Raises UsageError, also for a file that describes no valid pair."""
    files, errors = pair_files(args, on)
    if errors:
        raise errors[0]
    return files


def devices(args: argparse.Namespace) -> Devices:
    """Return the devices that `--devices` names, or for `auto` those of this machine. Raises UsageError.

    Where a pair's sides are compared, these are what the sides' own frameworks see.
    """
    if args.devices not in (None, "auto"):
        return parse(args.devices)
    takes_part = pythons(args)
    if getattr(args, "sides", []):
        files, _ = pair_files(args, WITHOUT_GPU, runs_scripts=True)
        frameworks = {side.framework for file in files for side in file.sides}
        takes_part = {name: python for name, python in takes_part.items() if name in frameworks or not frameworks}
    return available(takes_part)


def pythons(args: argparse.Namespace) -> dict[str, str]:
    """Return the Python interpreter of each backend that is to run; "" stands for the running interpreter."""
    backends = {"torch": args.torch_python, "keras": args.keras_python}
    backend = getattr(args, "backend", None)
    return {backend: backends[backend]} if backend else backends


def globs(args: argparse.Namespace) -> list[str]:
    """Return the globs of the built-in cases that the flags ask for; empty if they ask for none."""
    return ["*"] if args.all else args.case


def chosen_cases(args: argparse.Namespace, on: Devices) -> list[schema.Case]:
    """Return the built-in cases that the flags choose.

    Without `--case` and `--all` these are the default ones, or none where the flags name a pair. Raises UsageError.
    """
    if not globs(args) and (getattr(args, "pair", []) or getattr(args, "torch", "")):
        return []
    return cases.select(globs(args), args.set, **_fields(args, on))


def _fields(args: argparse.Namespace, on: Devices) -> dict[str, Any]:
    return {**{name: getattr(args, name) for name in TRAINING}, "devices": on.number}


def training_flags(args: argparse.Namespace) -> list[str]:
    """Return the given flags that change how the chosen cases are trained, quoted for a shell."""
    words = [f"--{name}={value}" for name in TRAINING if (value := getattr(args, name)) is not None]
    return words + [f"--set {shlex.quote(change)}" for change in args.set]


def command_line(program: str, argv: Sequence[str]) -> str:
    """Return the command line that calls a program, quoted for a shell."""
    called = f"python -m {program}" if "." in program else program
    return " ".join([called, *map(shlex.quote, argv)])


def compared_by(flags: str, args: argparse.Namespace) -> str:
    """Return the command that compares one case or pair again; `flags` choose it and are quoted for a shell."""
    pythons_given = [f"--{side}-python={shlex.quote(python)}" for side, python in pythons(args).items() if python]
    return " ".join(["python -m parity.compare", flags, *pythons_given])


def make_folder(flag: str, folder: Path) -> None:
    """Create the folder that `flag` names for results. Raises UsageError if it cannot be written to."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise UsageError(f"{flag}={folder}: expected a folder with write permission: {error}") from None


def end(program: str, main: Callable[[Sequence[str]], int]) -> NoReturn:
    """Run a program's `main` and exit with its status; report errors and signals on stderr.

    Only an error in this program itself prints a traceback.
    """
    process.prepare_streams()
    try:
        with process.stopping():
            try:
                status = main(sys.argv[1:])
            except SystemExit as early:  # the argument parser ends it: --help, or a wrong flag
                status = early.code if isinstance(early.code, int) else 0
            sys.stdout.flush()
    except Exception as error:
        status = _report_error(program, error)
    except process.Stopped as stop:
        process.tell(f"{program}: {stop}")
        status = stop.status
    process.abandon_output()
    sys.exit(status)


def _report_error(program: str, error: Exception) -> int:
    """Print the error that ended a program, and return the exit status for it."""
    match error:
        case UsageError():
            process.tell(f"{program}: {error}")
            return 2
        case BackendError() | MissingError():
            process.tell(f"{program}: {error}")
            return 3
        case BrokenPipeError():  # not 0: a reader that left early may not have seen the verdict
            process.tell(f"{program}: the reader of the output closed it before all was written")
            return UNREAD
        case OSError(filename=None) if error.errno in FAILED:  # one about a named file has a filename
            process.tell(f"{program}: the output cannot be written: {error.strerror}")
            return 2
        case OSError(errno=errno.ENOSPC | errno.EDQUOT):
            process.tell(f"{program}: {error}; set TMPDIR to a folder on a larger disk")
            return 2
        case _:  # Python's own status for an uncaught exception is 1, which here means "diverged"
            process.tell("".join(traceback.format_exception(error)).rstrip())
            return 3


def whole(text: str, least: int = 0) -> int:
    """Parse a flag's value as an integer of at least `least`."""
    if not text.isdecimal() or int(text) < least:
        raise argparse.ArgumentTypeError(f"received {text!r}, expected a whole number of {least} or more")
    return int(text)


def seconds(text: str) -> float:
    """Parse a flag's value as a finite, positive number of seconds."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"received {text!r}, expected a number of seconds above 0")
    return number


def count(text: str) -> int:
    """Parse a flag's value as an integer of at least 1."""
    return whole(text, least=1)
