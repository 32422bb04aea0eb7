"""What a tf.function is called with, as far as TensorFlow compares it with what was traced, in words."""

import inspect
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context
from tensorflow.python.eager.polymorphic_function.polymorphic_function import Function  # what tf.function returns

from keras_impl.harness.pretend import name

ON = "tf.device"  # beside the arguments: where the call stood


class Argument(NamedTuple):
    """`text`: what TensorFlow compares of it. `held`: the object, where TensorFlow compares that."""

    text: str
    held: object = None


def arguments(function: Function, args: tuple, kwargs: dict) -> dict[str, Argument]:
    """Each tensor and each value, by the name of its parameter and its place in it; and the device of the call."""
    return dict(_arguments(function, args, kwargs))


def differences(before: dict[str, Argument], now: dict[str, Argument]) -> dict[str, str]:
    """By the names of the arguments."""
    changes = {}
    for each in dict.fromkeys((*before, *now)):
        was, now_is = before.get(each, Argument("missing")), now.get(each, Argument("missing"))
        if was.text != now_is.text:
            changes[each] = f"{each}: {was.text} -> {now_is.text}"
        elif was.held is not now_is.held:
            changes[each] = f"{each}: another object, {now_is.text}"
    return changes


def _arguments(function: Function, args: tuple, kwargs: dict) -> Iterator[tuple[str, Argument]]:
    yield ON, Argument(name(context.context().device_name or ""))
    for parameter, value in _bound(function, args, kwargs).items():
        leaves = tf.nest.flatten(value)
        for place, leaf in enumerate(leaves):
            yield f"{parameter}[{place}]" if len(leaves) > 1 else parameter, _argument(leaf)


def _bound(function: Function, args: tuple, kwargs: dict) -> dict[str, Any]:
    """A parameter like *batches gives a tuple, one like **options a dict."""
    return dict(inspect.signature(function.python_function).bind(*args, **kwargs).arguments)


def _argument(value: Any) -> Argument:
    if isinstance(value, (tf.Tensor, np.ndarray)):
        return Argument(f"{np.dtype(getattr(value.dtype, 'as_numpy_dtype', value.dtype))}{list(value.shape)}")
    if value is None or isinstance(value, (bool, int, float, str, bytes, tf.DType)):
        return Argument(repr(value))
    return Argument(f"a {type(value).__name__}", value)
