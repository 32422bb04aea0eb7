"""Which line of the user's is running: the innermost frame that is neither of a framework nor of the doctor."""

import os
import sys
from functools import cache
from types import CodeType, FrameType, TracebackType

import torch

from parity.doctor import ownership, rewrite
from parity.doctor.rewrite import Spot

ABOVE = os.path.join(os.path.dirname(os.path.dirname(torch.__file__)), "")  # of the package
# Of torch, what merely passes a call of the user's on.
PASSING = tuple(
    os.path.join("torch", *path)
    for path in (
        ("overrides.py",),
        ("_tensor.py",),
        ("functional.py",),
        ("nn", "functional.py"),
        ("utils", "_contextlib.py"),
    )
)
MODULE = os.path.join("torch", "nn", "modules", "module.py")

USER, PASSED, MOVED, LIBRARY = range(4)


def line(made: object = None) -> str:
    """The user's line that is running, "" if there is none. `made`: not one in a method of this object."""
    found = frame(made)
    return _text(found.f_code, found.f_lineno) if found else ""


def frame(made: object = None) -> FrameType | None:
    """The frame of that line."""
    found: FrameType | None = sys._getframe(1)
    while found is not None and (_kind(found.f_code) != USER or (made is not None and _self(found) is made)):
        found = found.f_back
    return found


def spot(made: object = None) -> Spot | None:
    """Where in that line the program is."""
    found = frame(made)
    return rewrite.spot(found) if found else None


def direct(modules: bool = False) -> str:
    """The user's line if it calls what is running by itself, "" if code of a framework does.

    `modules`: or by a method of nn.Module, as model.to() does.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _kind(frame.f_code) in ((PASSED, MOVED) if modules else (PASSED,)):
        frame = frame.f_back
    return _text(frame.f_code, frame.f_lineno) if frame and _kind(frame.f_code) == USER else ""


def within(path: str) -> bool:
    """Whether a function of this file, "torch/utils/checkpoint.py", is running."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not frame.f_code.co_filename.endswith(path):
        frame = frame.f_back
    return frame is not None


def line_of(traceback: TracebackType | None) -> str:
    """The innermost of the user's lines that an exception went through."""
    found = ""
    while traceback is not None:
        if _kind(traceback.tb_frame.f_code) == USER:
            found = _text(traceback.tb_frame.f_code, traceback.tb_lineno)
        traceback = traceback.tb_next
    return found


def _kind(code: CodeType) -> int:
    return _judged(code.co_filename, ownership.programs())


@cache
def _judged(file: str, _programs: tuple[str, ...]) -> int:
    owner = ownership.owner(file)
    if owner != "installed":
        return USER if owner == "user" else PASSED
    package = file.removeprefix(ABOVE)
    if package.startswith(PASSING):
        return PASSED
    return MOVED if package == MODULE else LIBRARY


def _self(frame: FrameType) -> object:
    """The first argument of the function."""
    names = frame.f_code.co_varnames[: frame.f_code.co_argcount]
    return frame.f_locals.get(names[0]) if names else None


def _text(code: CodeType, number: int) -> str:
    here = os.path.join(os.getcwd(), "")
    return f"{code.co_filename.removeprefix(here)}:{number}"
