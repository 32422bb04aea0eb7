"""Random numbers and times that Python computes in a tf.function: a graph keeps those of its trace.

Observed steps run functions eagerly, where the profile of the function shows each call. It does not show NumPy's, which
are therefore wrapped.
"""

import datetime
import random
import re
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial, wraps
from types import FrameType
from typing import Any
from unittest import mock

import numpy as np
import tensorflow as tf
from tensorflow.python.eager.polymorphic_function.polymorphic_function import Function  # what tf.function returns

from keras_impl.instruments import source
from parity.core import ownership
from parity.core.patches import applied, around
from parity.doctor import rewrite
from parity.doctor.evidence import Code, Frozen, Place, Step

IN_PYTHON = "tensorflow/python/ops/script_ops.py"  # a py_function runs in each step
CLOCKS = (time, datetime.datetime, datetime.date)
READS = ("time", "time_ns", "now", "today", "utcnow")
NO_DRAWS = ("seed", "get_state", "set_state", "get_bit_generator", "set_bit_generator", "spawn", "test")
# By function, its arguments in their order, and what TensorFlow draws in its place.
DRAWS = {
    "random": (("size",), "tf.random.uniform({size})"),
    "uniform": (("low", "high", "size"), "tf.random.uniform({size}, {low}, {high})"),
    "normal": (("loc", "scale", "size"), "tf.random.normal({size}, {loc}, {scale})"),
    "gauss": (("loc", "scale"), "tf.random.normal({size}, {loc}, {scale})"),
    "standard_normal": (("size",), "tf.random.normal({size})"),
    "rand": ((), "tf.random.uniform({shape})"),
    "randn": ((), "tf.random.normal({shape})"),
    "randint": (("low", "high", "size"), "tf.random.uniform({size}, {low}, {high}, tf.int32)"),
    "integers": (("low", "high", "size"), "tf.random.uniform({size}, {low}, {high}, tf.int32)"),
    "permutation": (("high",), "tf.random.shuffle(tf.range({high}))"),
    "time": ((), "tf.timestamp()"),
}
DEFAULTS = {"size": "()", "loc": "0.0", "scale": "1.0", "low": "0.0", "high": "1.0"}


def _noted(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function of NumPy's in one of Python, which a profile shows."""

    @wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return called


WRAPPER = _noted(len).__code__


def _wrapped(functions: Any) -> dict[str, Callable[..., Any]]:
    draws = {name: each for name, each in vars(functions).items() if callable(each) and name not in NO_DRAWS}
    return {name: _noted(each) for name, each in draws.items() if name.islower() and not name.startswith("_")}


_Generator = type("Generator", (np.random.Generator,), _wrapped(np.random.Generator))


def _default_rng(seed: Any = None, make: Callable[..., Any] = np.random.default_rng) -> Any:
    return seed if isinstance(seed, np.random.Generator) else _Generator(make(seed).bit_generator)


def wrapped() -> AbstractContextManager[None]:
    """Return a context in which what NumPy draws with is wrapped; generators made in it stay wrapped."""
    functions = _wrapped(np.random) | {"default_rng": _default_rng}
    return applied(mock.patch.object(np.random, name, function) for name, function in functions.items())


def watched(step: Step) -> AbstractContextManager[None]:
    """Return a context that records such values in the step, unless the program itself runs functions eagerly."""
    is_eager = tf.config.functions_run_eagerly()

    def called(call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        profile = sys.getprofile()
        sys.setprofile(None if is_eager else partial(_profiled, step))
        try:
            return call(*args, **kwargs)
        finally:
            sys.setprofile(profile)

    return applied([wrapped(), around(Function, "__call__", called)])


def _profiled(step: Step, frame: FrameType | None, event: str, function: Any) -> None:
    """Note a call that draws a number or reads a clock, if no library is between it and the user's line."""
    owner = getattr(function, "__self__", None) if event == "c_call" else None
    is_clock = any(owner is clock for clock in CLOCKS) and function.__name__ in READS
    is_draw = isinstance(owner, random.Random) or (event == "call" and frame and frame.f_code is WRAPPER)
    if not (is_clock or is_draw):
        return
    while frame is not None and ownership.owner(frame.f_code.co_filename) in ("standard", "own"):
        frame = frame.f_back
    if frame is None or source.kind(frame.f_code.co_filename) != source.USER or source.within(IN_PYTHON):
        return
    call = rewrite.expression(rewrite.spot(frame))
    what = call.text(getattr(call.node, "func", None)) if call else ""
    place = Place(source=rewrite.shown(frame.f_code.co_filename, frame.f_lineno))
    mended = _in_graph(call) if call else None
    step.frozen.append(Frozen(what=what or "a value", clock=is_clock, place=place, mended=mended))


def _in_graph(call: rewrite.Expression) -> Code | None:
    """Return the line in which TensorFlow draws the number, another one in each step."""
    names, template = DRAWS.get(call.function, ((), ""))
    given = [call.text(argument) for argument in getattr(call.node, "args", ())]
    if not template or not all(given):
        return None
    texts = DEFAULTS | dict(zip(names, given, strict=False)) | {"shape": f"({', '.join(given)},)" if given else "()"}
    texts |= {str(each.arg): call.text(each.value) for each in call.node.keywords}
    if call.function in ("randint", "integers"):
        texts |= {"low": "0", "high": given[0]} if len(given) == 1 and not call.argument("high") else {}
        is_pythons = call.names.get(call.text(call.node.func).partition(".")[0]) is random
        texts["high"] += " + 1" if is_pythons else ""
    if re.fullmatch(r"\d+|len\(.*\)|.*\.shape\[-?\d+\]", texts["size"]):
        texts["size"] = f"({texts['size']},)"
    drawn = template.format(**texts)
    if code := call.with_text(call.node, drawn):  # a tensor is neither cast by NumPy's means nor made a constant
        own = re.escape(drawn)
        code.fix = re.sub(rf"{own}\.astype\([^()]*\)|\b(float|int|np\.float32)\({own}\)", lambda _: drawn, code.fix)
        code.fix = code.fix.replace(f"tf.constant({drawn}", f"tf.convert_to_tensor({drawn}")
    return code
