"""The user's line that is running, among the files of TensorFlow and Keras, and where in it the program is.

In a function that AutoGraph has converted, the line is the original one. Of an op the call stack also tells what kinds
of library code are in between.
"""

import os
import re
import sys
from functools import cache
from types import FrameType
from typing import NamedTuple

import keras
import tensorflow as tf
from tensorflow.python.util import tf_stack  # AutoGraph's source maps have no public API

from parity.core.ownership import LIBRARY, PASSED, USER, Line, Lines, shown
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


def _of_frameworks(file: str) -> int:
    packages = [file.removeprefix(above) for above in ABOVE if file.startswith(above)]
    return PASSED if any(package.startswith(PASSING) for package in packages) else LIBRARY


def _original(file: str, number: int) -> Line:
    mapper = tf_stack._source_mapper_stacks[tf_stack._get_thread_key()][-1]
    return mapper.get_effective_source_map().get((file, number), (file, number))[:2]


_LINES = Lines(_of_frameworks, AUTOGRAPH, _original)
direct, frame, kind, line, line_of = _LINES.direct, _LINES.frame, _LINES.kind, _LINES.line, _LINES.line_of
frames, within, nearest, standing_for = _LINES.frames, _LINES.within, _LINES.nearest, _LINES.standing_for


def spot(owner: object = None) -> rewrite.Spot | None:
    """Return where within the user's line the program is; None in a line that AutoGraph generated."""
    running = frame(owner)
    return rewrite.spot(running) if running and AUTOGRAPH not in running.f_code.co_filename else None


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
        names = frame.f_code.co_varnames if _may_be_loss(file) else ()  # helpers and other ops have others
        if "y_pred" in names or ("logits" in names and "cross_entropy" in frame.f_code.co_name):
            loss = frame
        elif METRICS in file:
            loss = None
        direct = direct and kind(file) == PASSED and loss is None
        strategy = strategy or STRATEGIES in file
        frame = frame.f_back
    return View(_text(file, frame.f_lineno) if frame else "", direct, strategy and tf.distribute.has_strategy(), loss)


_text = cache(shown)  # a step has thousands of ops, but few lines


@cache
def _may_be_loss(file: str) -> bool:
    return LOSSES.search(file) is not None
