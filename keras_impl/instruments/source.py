"""The user's line that is running: the innermost stack frame that belongs neither to a framework nor to the doctor.

The built-in models and strategies count as the user's. In a function that AutoGraph has converted, the line is the
original one. Of an op the call stack also tells what kinds of library code are in between.
"""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import FrameType, TracebackType
from typing import NamedTuple

import keras
import tensorflow as tf
from tensorflow.python.util import tf_stack  # AutoGraph's source maps have no public API

from parity.core import ownership
from parity.doctor import rewrite

# The folders that contain the packages.
ABOVE = tuple(os.path.join(os.path.dirname(os.path.dirname(each.__file__)), "") for each in (tf, keras))
# Files of the frameworks that merely pass a user's call on.
PASSING = (
    *(f"tensorflow/python/{folder}/" for folder in ("autograph", "eager", "framework", "ops", "util")),
    *(f"keras/src/backend/tensorflow/{file}.py" for file in ("core", "math", "nn", "numpy")),
    "keras/src/backend/__init__.py",
    "keras/src/backend/common/variables.py",
    "keras/src/ops/",
    "keras/src/utils/traceback_utils.py",
)
AUTOGRAPH = "__autograph_generated_file"
LOSSES = re.compile(r"/keras/src/losses/loss(es)?\.py|/tensorflow/python/ops/nn_(ops|impl)\.py")
METRICS = "/keras/src/metrics/"  # metrics compute with the functions of losses
STRATEGIES = "/tensorflow/python/distribute/"

USER, PASSED, LIBRARY = range(3)
_standing: list[str] = []  # lines that stand for what runs now, the innermost last
Spot = tuple[str, int]  # file and line number


def line(owner: object = None) -> str:
    """Return the user's line that is running, as "file:line"; "" if there is none.

    With `owner`, methods of that object are skipped: while it is being made, the line is the one that makes it.
    """
    frame_ = frame(owner)
    return text(*_spot(frame_)) if frame_ else ""


def nearest() -> str:
    """Return the user's line that is running; if there is none, that of an installed package that is no framework."""
    return line() or (_standing[-1] if _standing else "") or _library_line()


@contextmanager
def standing_for(line: str) -> Iterator[None]:
    """Take a line for the user's that is running: of an operation in a graph, the line that has made it."""
    _standing.append(line)
    try:
        yield
    finally:
        _standing.pop()


def frame(owner: object = None) -> FrameType | None:
    """Return the frame of the user's line that is running."""
    users = (candidate for candidate in _stack(sys._getframe(1)) if kind(_spot(candidate)[0]) == USER)
    return next((candidate for candidate in users if owner is None or _self(candidate) is not owner), None)


def spot(owner: object = None) -> rewrite.Spot | None:
    """Return where within the user's line the program is; None in a line that AutoGraph generated."""
    frame_ = frame(owner)
    return rewrite.spot(frame_) if frame_ and AUTOGRAPH not in frame_.f_code.co_filename else None


def direct() -> str:
    """Return the user's line if it calls the current function directly, "" if a framework's code is in between."""
    for frame in _stack(sys._getframe(1)):
        spot = _spot(frame)
        if kind(spot[0]) != PASSED:
            return text(*spot) if kind(spot[0]) == USER else ""
    return ""


def within(path: str) -> bool:
    """Return whether a function of this file or folder ("keras/src/trainers/") is running."""
    return any(path in frame.f_code.co_filename for frame in _stack(sys._getframe(1)))


def line_of(traceback: TracebackType | None) -> str:
    """Return the innermost of the user's lines in a traceback."""
    innermost = ""
    while traceback is not None:
        spot = _original(traceback.tb_frame.f_code.co_filename, traceback.tb_lineno)
        if kind(spot[0]) == USER:
            innermost = text(*spot)
        traceback = traceback.tb_next
    return innermost


def text(file: str, number: int) -> str:
    """Return "file:line", relative to the working directory if the file is below it."""
    path, working_directory = Path(file).absolute(), Path.cwd()
    return f"{path.relative_to(working_directory) if path.is_relative_to(working_directory) else path}:{number}"


def kind(file: str) -> int:
    """Return whose file it is: USER, LIBRARY (with a purpose of its own) or PASSED (merely passes calls on)."""
    return _judged(file, ownership.programs())


@cache
def _judged(file: str, _programs: tuple[str, ...]) -> int:
    owner = "standard" if AUTOGRAPH in file else ownership.owner(file)
    if owner != "installed":
        return USER if owner == "user" else PASSED
    packages = [file.removeprefix(above) for above in ABOVE if file.startswith(above)]
    return PASSED if any(package.startswith(PASSING) for package in packages) else LIBRARY


def _library_line() -> str:
    spots = (_spot(frame) for frame in _stack(sys._getframe(1)))
    file, number = next((spot for spot in spots if _is_models(spot[0], ownership.programs())), ("", 0))
    return f"{ownership.in_package(file)}:{number}" if file else ""


@cache
def _is_models(file: str, _programs: tuple[str, ...]) -> bool:
    return ownership.is_models(file)


def _stack(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield the frames, the innermost first."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def _spot(frame: FrameType) -> Spot:
    return _original(frame.f_code.co_filename, frame.f_lineno)


def _self(frame: FrameType) -> object:
    """Return the first argument of the frame's function."""
    names = frame.f_code.co_varnames[: frame.f_code.co_argcount]
    return frame.f_locals.get(names[0]) if names else None


def _original(file: str, number: int) -> Spot:
    """Return the original file and line of a line that AutoGraph generated; any other unchanged."""
    if AUTOGRAPH not in file:
        return file, number
    mapper = tf_stack._source_mapper_stacks[tf_stack._get_thread_key()][-1]
    return mapper.get_effective_source_map().get((file, number), (file, number))[:2]


class View(NamedTuple):
    """What the call stack says about an op."""

    line: str  # the user's line
    direct: bool  # the op is in that line, or in a wrapper that it calls
    strategy: bool  # the op exchanges values between replicas of tf.distribute
    loss: FrameType | None  # the outermost call of a loss function in between


def look() -> View:
    """Return the view of what is being executed now."""
    direct, strategy, loss = True, False, None
    frame = sys._getframe(1)
    while frame is not None and kind(file := frame.f_code.co_filename) != USER:
        if _may_be_loss(file) and _is_loss(frame):
            loss = frame
        elif METRICS in file:
            loss = None
        direct = direct and kind(file) == PASSED and loss is None
        strategy = strategy or STRATEGIES in file
        frame = frame.f_back
    return View(_text(file, frame.f_lineno) if frame else "", direct, strategy and tf.distribute.has_strategy(), loss)


_text = cache(text)  # a step has thousands of ops, but few lines


@cache
def _may_be_loss(file: str) -> bool:
    return LOSSES.search(file) is not None


def _is_loss(frame: FrameType) -> bool:
    """Return whether the frame is a loss function, rather than a helper or another op of these files."""
    names = frame.f_code.co_varnames
    return "y_pred" in names or ("logits" in names and "cross_entropy" in frame.f_code.co_name)
