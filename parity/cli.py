"""The flags that the programs share, and how they end: one line for a mistake, the right status."""

import argparse
import errno
import math
import shlex
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, get_args

from absl.flags import argparse_flags

from parity.config import cases, schema
from parity.config.devices import Devices, parse
from parity.core import signals, streams
from parity.core.errors import BackendError, PairError, UsageError, nearest
from parity.pairs import file as pairs
from parity.pairs.file import PairFile
from parity.runtime.backend import PATIENCE
from parity.runtime.hardware import available

UNREAD = 141  # what a shell reports for a program whose reader left


class Parser(argparse_flags.ArgumentParser):
    """A parser whose complaints are one line, with the nearest flag."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(inherited_absl_flags=None, allow_abbrev=False, **kwargs)  # type: ignore[no-untyped-call]

    def error(self, message: str) -> NoReturn:
        """End with status 2."""
        flags = [flag for action in self._actions for flag in action.option_strings]
        unknown = message.partition("unrecognized arguments: ")[2].split("=")[0].split(" ")[0]
        hint = nearest(unknown, flags) if unknown.startswith("-") else ""
        self.exit(2, f"{self.prog}: {message}{hint}; --help lists the flags\n")


def add_case_flags(parser: argparse.ArgumentParser) -> None:
    """The flags that say what to run, and by which interpreters."""
    add_training_flags(parser)
    add_pythons(parser)


def add_pythons(parser: argparse.ArgumentParser) -> None:
    """The flags that name the interpreters."""
    add = parser.add_argument
    add("--torch-python", default="", metavar="PYTHON", help="the interpreter for the PyTorch side")
    add("--keras-python", default="", metavar="PYTHON", help="the interpreter for the Keras side")


def add_timeout(parser: argparse.ArgumentParser) -> None:
    """The flag that says how long a silent process is waited for."""
    parser.add_argument(
        "--timeout",
        type=seconds,
        default=PATIENCE,
        metavar="SECONDS",
        help=f"until a process that records nothing counts as hung (default {PATIENCE:.0f})",
    )


def add_training_flags(parser: argparse.ArgumentParser) -> None:
    """The flags that say what to run."""
    add = parser.add_argument
    add("--case", action="append", default=[], metavar="GLOB", help="cases to run, e.g. 'transformer/*' (repeatable)")
    add("--devices", metavar="auto|cpu:N|gpu:N", help="logical devices (default auto: the GPUs, or else cpu:2)")
    add("--precision", choices=get_args(schema.Precision), help="the run precision beside float64 (default float32)")
    add("--steps", type=count, help="training steps (default 5)")
    add("--every", type=count, help="record losses and gradients of every k-th step between first and last")
    add("--seed", type=int, help="seed of weights, data and order (default 0)")
    add("--set", action="append", default=[], metavar="A.B=C", help="change any field of a case (repeatable)")


def add_pair_files(parser: argparse.ArgumentParser) -> None:
    """The flag that names a user's own models."""
    parser.add_argument(
        "--pair", action="append", default=[], type=Path, metavar="FILE.toml", help="your own two models (repeatable)"
    )


class Pairs(NamedTuple):
    """The pairs that flags name. `wrong`: those whose file says what no pair can be."""

    files: list[PairFile]
    wrong: list[PairError]


def pair_files(args: argparse.Namespace, on: Devices) -> Pairs:
    """Return the pairs that the flags name, by files, or by --torch and --keras.

    Raises UsageError for flags, and for a file that cannot be read.
    """
    fields = _fields(args, on)
    found = Pairs([], [])
    for path in args.pair:
        try:
            found.files.append(pairs.load(path, args.set, **fields))
        except PairError as error:  # the others are compared all the same
            found.wrong.append(error)
    if getattr(args, "torch", ""):
        found.files.append(pairs.from_flags(args.torch, args.keras, args.input, **fields))
    names = [file.case.name for file in found.files] + [error.case for error in found.wrong]
    if twice := [name for name in names if names.count(name) > 1]:
        raise UsageError(f"there are two pairs of the name {twice[0]!r}; give them different names")
    return found


def devices(args: argparse.Namespace) -> Devices:
    """The devices that the flags name, or those that there are. Raises UsageError."""
    return available(pythons(args)) if args.devices in (None, "auto") else parse(args.devices)


def pythons(args: argparse.Namespace) -> dict[str, str]:
    """The interpreter of each backend that is to run; "" for this one."""
    backends = {"torch": args.torch_python, "keras": args.keras_python}
    one = getattr(args, "backend", None)
    return {one: backends[one]} if one else backends


def chosen_cases(args: argparse.Namespace, on: Devices) -> list[schema.Case]:
    """The built-in cases that the flags name; all of them if they name nothing. Raises UsageError."""
    if not args.case and (getattr(args, "pair", []) or getattr(args, "torch", "")):
        return []
    return cases.select(args.case, args.set, **_fields(args, on))


def _fields(args: argparse.Namespace, on: Devices) -> dict[str, Any]:
    return {"devices": on.number, **{name: getattr(args, name) for name in ("precision", "steps", "every", "seed")}}


def case_flags(args: argparse.Namespace, case: schema.Case) -> str:
    """The flags that choose one of the chosen cases again."""
    return " ".join([f"--case={shlex.quote(case.name)}", *training_flags(args)])


def training_flags(args: argparse.Namespace) -> list[str]:
    """The flags that change what the chosen cases are."""
    names = ("devices", "precision", "steps", "every", "seed")
    given = [(name, getattr(args, name)) for name in names]
    words = [f"--{name}={value}" for name, value in given if value is not None]
    return words + [f"--set {shlex.quote(change)}" for change in args.set]


def make_folder(flag: str, folder: Path) -> None:
    """Make a folder for results. Raises UsageError if it cannot be written to."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise UsageError(f"{flag}={folder}: expected a folder that can be written to: {error}") from None


def end(program: str, main: Callable[[Sequence[str]], int]) -> NoReturn:
    """Run a program and exit with its status; the user's mistakes and signals are one line on stderr."""
    streams.prepare()
    try:
        with signals.stopping():
            status = _returned(main)
            sys.stdout.flush()
    except Exception as error:
        status = _told(program, error)
    except signals.Stopped as stop:
        streams.tell(f"{program}: {stop}")
        status = stop.status
    streams.abandon()
    sys.exit(status)


def _returned(main: Callable[[Sequence[str]], int]) -> int:
    """Return the status of a program, also where it ends early, as for --help."""
    try:
        return main(sys.argv[1:])
    except SystemExit as early:
        return early.code if isinstance(early.code, int) else 0


def _told(program: str, error: Exception) -> int:
    """Say what ended a program; returns the status."""
    match error:
        case UsageError():
            streams.tell(f"{program}: {error}")
            return 2
        case BackendError():
            streams.tell(f"{program}: {error}")
            return 3
        case BrokenPipeError():  # the verdict is not known to be a match
            streams.tell(f"{program}: the output was not read to its end")
            return UNREAD
        case OSError() if streams.is_output(error):
            streams.tell(f"{program}: the output cannot be written: {error.strerror}")
            return 2
        case OSError(errno=errno.ENOSPC | errno.EDQUOT):
            streams.tell(f"{program}: {error}; set TMPDIR to a folder on a larger disk")
            return 2
        case _:  # a mistake of this program's own must not end with 1, which reads as "diverged"
            streams.tell("".join(traceback.format_exception(error)).rstrip())
            return 3


def whole(text: str) -> int:
    """A whole number from 0 on, for a flag."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"received {text!r}, expected a whole number of 0 or more")
    return int(text)


def seconds(text: str) -> float:
    """A number of seconds above 0, for a flag."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"received {text!r}, expected a number of seconds above 0")
    return number


def count(text: str) -> int:
    """A whole number from 1 on, for a flag."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"received {text!r}, expected a whole number of 1 or more")
    return int(text)
