"""The arguments of a tf.function as TensorFlow compares them with earlier traces, in words."""

import inspect
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context
from tensorflow.python.eager.polymorphic_function.polymorphic_function import (
    Function,
)  # the class of what tf.function returns

from keras_impl.instruments.pretended import name

ON = "tf.device"  # recorded beside the arguments: the device scope of the call


class Argument(NamedTuple):
    """What TensorFlow compares of an argument: a text, and the object `held` if it compares identity."""

    text: str
    held: object = None


def arguments(function: Function, args: tuple, kwargs: dict) -> dict[str, Argument]:
    """Return each tensor and value of a call, by parameter name and position within it.

    The device scope of the call is included.
    """
    return dict(_arguments(function, args, kwargs))


def differences(before: dict[str, Argument], now: dict[str, Argument]) -> dict[str, str]:
    """Return what differs between two calls, by argument name, in words."""
    changes = {}
    for argument in dict.fromkeys((*before, *now)):
        earlier, current = before.get(argument, Argument("missing")), now.get(argument, Argument("missing"))
        if earlier.text != current.text:
            changes[argument] = f"{argument}: {earlier.text} -> {current.text}"
        elif earlier.held is not current.held:
            changes[argument] = f"{argument}: another object, {current.text}"
    return changes


def _arguments(function: Function, args: tuple, kwargs: dict) -> Iterator[tuple[str, Argument]]:
    yield ON, Argument(name(context.context().device_name or ""))
    for parameter, value in _bound(function, args, kwargs).items():
        leaves = tf.nest.flatten(value)
        for position, leaf in enumerate(leaves):
            yield f"{parameter}[{position}]" if len(leaves) > 1 else parameter, _argument(leaf)


def _bound(function: Function, args: tuple, kwargs: dict) -> dict[str, Any]:
    """Return the arguments by parameter; *args gives a tuple, **kwargs a dict."""
    return dict(inspect.signature(function.python_function).bind(*args, **kwargs).arguments)


def _argument(value: Any) -> Argument:
    if isinstance(value, (tf.Tensor, np.ndarray)):
        return Argument(f"{np.dtype(getattr(value.dtype, 'as_numpy_dtype', value.dtype))}{list(value.shape)}")
    if value is None or isinstance(value, (bool, int, float, str, bytes, tf.DType)):
        return Argument(repr(value))
    return Argument(f"a {type(value).__name__}", value)
