"""The user's line that is running: the innermost stack frame that belongs neither to a framework nor to the doctor.

The built-in models and strategies count as the user's.
"""

import os
import sys
from functools import cache
from types import CodeType, FrameType, TracebackType

import torch

from parity.core import ownership
from parity.doctor import rewrite
from parity.doctor.rewrite import Spot

ABOVE = os.path.join(os.path.dirname(os.path.dirname(torch.__file__)), "")  # the folder that the torch package is in
# Files of torch that merely pass a user's call on.
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


def line(owner: object = None) -> str:
    """Return the user's line that is running, as "file:line"; "" if there is none.

    With `owner`, methods of that object are skipped: while it is being made, the line is the one that makes it.
    """
    frame_ = frame(owner)
    return _text(frame_.f_code, frame_.f_lineno) if frame_ else ""


def nearest() -> str:
    """Return the user's line that is running; if there is none, that of an installed package that is no framework."""
    return line() or _library_line()


def frame(owner: object = None) -> FrameType | None:
    """Return the frame of the user's line that is running."""
    frame_: FrameType | None = sys._getframe(1)
    while frame_ is not None and (_kind(frame_.f_code) != USER or (owner is not None and _self(frame_) is owner)):
        frame_ = frame_.f_back
    return frame_


def is_user(frame_: FrameType) -> bool:
    """Return whether a frame runs code of the user's."""
    return _kind(frame_.f_code) == USER


def frame_of(owner: object) -> FrameType | None:
    """Return the frame of the user's that runs a method of an object; None if there is none."""
    frame_ = frame()
    while frame_ is not None and not (is_user(frame_) and _self(frame_) is owner):
        frame_ = frame_.f_back
    return frame_


def spot(owner: object = None) -> Spot | None:
    """Return where within the user's line the program is."""
    frame_ = frame(owner)
    return rewrite.spot(frame_) if frame_ else None


def spots() -> list[Spot]:
    """Return where within the user's lines the program is, in all frames of the user's, the innermost first."""
    found, frame_ = [], frame()
    while frame_ is not None:
        found += [rewrite.spot(frame_)] if is_user(frame_) else []
        frame_ = frame_.f_back
    return found


def direct(modules: bool = False) -> str:
    """Return the user's line if it calls the current function directly, "" if a framework's code is in between.

    With `modules`, the methods of nn.Module that move a model, such as model.to(), may be in between.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _kind(frame.f_code) in ((PASSED, MOVED) if modules else (PASSED,)):
        frame = frame.f_back
    return _text(frame.f_code, frame.f_lineno) if frame and _kind(frame.f_code) == USER else ""


def within(path: str) -> bool:
    """Return whether a function of this file ("torch/utils/checkpoint.py") is running."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not frame.f_code.co_filename.endswith(path):
        frame = frame.f_back
    return frame is not None


def line_of(traceback: TracebackType | None) -> str:
    """Return the innermost of the user's lines in a traceback."""
    innermost = ""
    while traceback is not None:
        if _kind(traceback.tb_frame.f_code) == USER:
            innermost = _text(traceback.tb_frame.f_code, traceback.tb_lineno)
        traceback = traceback.tb_next
    return innermost


def _library_line() -> str:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not _is_models(frame.f_code.co_filename, ownership.programs()):
        frame = frame.f_back
    return f"{ownership.in_package(frame.f_code.co_filename)}:{frame.f_lineno}" if frame else ""


@cache
def _is_models(file: str, _programs: tuple[str, ...]) -> bool:
    return ownership.is_models(file)


def _kind(code: CodeType) -> int:
    return _judged(code.co_filename, ownership.programs())


@cache
def _judged(file: str, _programs: tuple[str, ...]) -> int:
    """Return whose file it is: the user's, one that passes calls on, nn.Module's own, or a library's."""
    owner = ownership.owner(file)
    if owner != "installed":
        return USER if owner == "user" else PASSED
    package = file.removeprefix(ABOVE)
    if package.startswith(PASSING):
        return PASSED
    return MOVED if package == MODULE else LIBRARY


def _self(frame: FrameType) -> object:
    """Return the first argument of the frame's function."""
    names = frame.f_code.co_varnames[: frame.f_code.co_argcount]
    return frame.f_locals.get(names[0]) if names else None


def _text(code: CodeType, number: int) -> str:
    working_directory = os.path.join(os.getcwd(), "")
    return f"{code.co_filename.removeprefix(working_directory)}:{number}"
