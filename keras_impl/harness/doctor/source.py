"""Which line of the user's is running: the innermost frame that is neither of a framework nor of the doctor.

The built-in models and strategies count as the user's. In a function that AutoGraph converted, the line is the one
that it was converted from.
"""

import os
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import FrameType, TracebackType

import keras
import tensorflow as tf
from tensorflow.python.util import tf_stack  # AutoGraph's source maps have no public door

from parity.doctor import ownership, rewrite

ABOVE = tuple(os.path.join(os.path.dirname(os.path.dirname(each.__file__)), "") for each in (tf, keras))  # the packages
# Of the frameworks, what merely passes a call of the user's on.
PASSING = (
    *(f"tensorflow/python/{folder}/" for folder in ("autograph", "eager", "framework", "ops", "util")),
    *(f"keras/src/backend/tensorflow/{file}.py" for file in ("core", "math", "nn", "numpy")),
    "keras/src/backend/__init__.py",
    "keras/src/backend/common/variables.py",
    "keras/src/ops/",
    "keras/src/utils/traceback_utils.py",
)
AUTOGRAPH = "__autograph_generated_file"

USER, PASSED, LIBRARY = range(3)
Spot = tuple[str, int]  # a file and a line of it


def line(made: object = None) -> str:
    """The user's line that is running, "" if there is none. `made`: not one in a method of this object."""
    found = frame(made)
    return text(*_spot(found)) if found else ""


def frame(made: object = None) -> FrameType | None:
    """The frame of that line."""
    users = (each for each in _stack(sys._getframe(1)) if kind(_spot(each)[0]) == USER)
    return next((each for each in users if made is None or _self(each) is not made), None)


def spot(made: object = None) -> rewrite.Spot | None:
    """Where in that line the program is; not in one that AutoGraph wrote."""
    found = frame(made)
    return rewrite.spot(found) if found and AUTOGRAPH not in found.f_code.co_filename else None


def direct() -> str:
    """The user's line if it calls what is running by itself, "" if code of a framework does."""
    for frame in _stack(sys._getframe(1)):
        spot = _spot(frame)
        if kind(spot[0]) != PASSED:
            return text(*spot) if kind(spot[0]) == USER else ""
    return ""


def within(path: str) -> bool:
    """Whether a function of a file or folder, "keras/src/trainers/", is running."""
    return any(path in frame.f_code.co_filename for frame in _stack(sys._getframe(1)))


def line_of(traceback: TracebackType | None) -> str:
    """The innermost of the user's lines that an exception went through."""
    found = ""
    while traceback is not None:
        spot = _original(traceback.tb_frame.f_code.co_filename, traceback.tb_lineno)
        if kind(spot[0]) == USER:
            found = text(*spot)
        traceback = traceback.tb_next
    return found


def text(file: str, number: int) -> str:
    """ "file:line", from the working directory where the file is below it."""
    path, here = Path(file).absolute(), Path.cwd()
    return f"{path.relative_to(here) if path.is_relative_to(here) else path}:{number}"


def kind(file: str) -> int:
    """Whose a file is: USER's; of a LIBRARY that has an aim of its own; or PASSED over."""
    return _judged(file, ownership.programs())


@cache
def _judged(file: str, _programs: tuple[str, ...]) -> int:
    owner = "standard" if AUTOGRAPH in file else ownership.owner(file)
    if owner != "installed":
        return USER if owner == "user" else PASSED
    packages = [file.removeprefix(above) for above in ABOVE if file.startswith(above)]
    return PASSED if any(package.startswith(PASSING) for package in packages) else LIBRARY


def _stack(frame: FrameType | None) -> Iterator[FrameType]:
    """The innermost first."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def _spot(frame: FrameType) -> Spot:
    return _original(frame.f_code.co_filename, frame.f_lineno)


def _self(frame: FrameType) -> object:
    """The first argument of the function."""
    names = frame.f_code.co_varnames[: frame.f_code.co_argcount]
    return frame.f_locals.get(names[0]) if names else None


def _original(file: str, number: int) -> Spot:
    """Where AutoGraph took a line from, by the source maps of the functions that are running."""
    if AUTOGRAPH not in file:
        return file, number
    mapper = tf_stack._source_mapper_stacks[tf_stack._get_thread_key()][-1]
    return mapper.get_effective_source_map().get((file, number), (file, number))[:2]
