"""One look at the call stack of an op: the user's line, and what kinds of library code are in between."""

import re
import sys
from functools import cache
from types import FrameType
from typing import NamedTuple

import tensorflow as tf

from keras_impl.instruments import source

LOSSES = re.compile(r"/keras/src/losses/loss(es)?\.py|/tensorflow/python/ops/nn_(ops|impl)\.py")
METRICS = "/keras/src/metrics/"  # metrics compute with the functions of losses
STRATEGIES = "/tensorflow/python/distribute/"


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
    while frame is not None and source.kind(file := frame.f_code.co_filename) != source.USER:
        if _may_be_loss(file) and _is_loss(frame):
            loss = frame
        elif METRICS in file:
            loss = None
        direct = direct and source.kind(file) == source.PASSED and loss is None
        strategy = strategy or STRATEGIES in file
        frame = frame.f_back
    return View(_text(file, frame.f_lineno) if frame else "", direct, strategy and tf.distribute.has_strategy(), loss)


_text = cache(source.text)  # a step has thousands of ops, but few lines


@cache
def _may_be_loss(file: str) -> bool:
    return LOSSES.search(file) is not None


def _is_loss(frame: FrameType) -> bool:
    """Return whether the frame is a loss function, rather than a helper or another op of these files."""
    names = frame.f_code.co_varnames
    return "y_pred" in names or ("logits" in names and "cross_entropy" in frame.f_code.co_name)
