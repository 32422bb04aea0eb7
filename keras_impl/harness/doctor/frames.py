"""One look at the stack: the user's line that runs, and what of the libraries' stands between it and an op."""

import re
import sys
from functools import cache
from types import FrameType
from typing import NamedTuple

import tensorflow as tf

from keras_impl.harness.doctor import source

LOSSES = re.compile(r"/keras/src/losses/loss(es)?\.py|/tensorflow/python/ops/nn_(ops|impl)\.py")
METRICS = "/keras/src/metrics/"  # which compute with the same functions
STRATEGIES = "/tensorflow/python/distribute/"


class View(NamedTuple):
    """What the stack says of an op."""

    line: str  # the user's
    direct: bool  # the op stands in that line, or in a wrapper that does
    strategy: bool  # it is that of a strategy of tf.distribute, which exchanges what replicas have
    loss: FrameType | None  # the outermost call of a loss function between the two


def look() -> View:
    """Of what is executed now."""
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


_text = cache(source.text)  # there are thousands of ops in a step, and a few lines


@cache
def _may_be_loss(file: str) -> bool:
    return LOSSES.search(file) is not None


def _is_loss(frame: FrameType) -> bool:
    """Of the helpers and the other ops in these files, no."""
    names = frame.f_code.co_varnames
    return "y_pred" in names or ("logits" in names and "cross_entropy" in frame.f_code.co_name)
