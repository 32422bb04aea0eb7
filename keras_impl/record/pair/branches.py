"""Reports to an observer the values at which a model branches: at kinks, in masks, and as ids of embeddings.

From them the report says which branches of the model the inputs have reached. Keras's activations are made of
TensorFlow's functions, which a user's layers may call directly as well: so these are wrapped.
"""

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import keras
import tensorflow as tf
from keras.src import backend

from keras_impl.record import calls
from keras_impl.record.calls import Call
from keras_impl.record.weights import array
from parity.core.names import MODEL
from parity.pairs.vary.coverage import Observer

# Functions with kinks at fixed values: the lower and the upper one.
KINKS: dict[str, tuple[float | None, float | None]] = {
    "relu": (0.0, None),
    "relu6": (0.0, 6.0),
    "leaky_relu": (0.0, None),
    "elu": (0.0, None),
    "selu": (0.0, None),
}
# Functions of two arguments: the end at which the second argument clamps the first.
ENDS = {"maximum": "lower", "minimum": "upper"}


@contextmanager
def observed(observer: Observer) -> Iterator[None]:
    """Report within the block the arguments of the model's branching functions."""
    with ExitStack() as stack:
        for name, limits in KINKS.items():
            stack.enter_context(_seen(tf.nn, name, functools.partial(_at_kinks, observer, name, limits)))
        stack.enter_context(_seen(tf, "clip_by_value", functools.partial(_at_clip, observer)))
        # Not tf.where, which Keras's own functions use internally; a model's own choices go through ops.where.
        stack.enter_context(_seen(backend.numpy, "where", functools.partial(_at_where, observer)))
        for name, end in ENDS.items():
            stack.enter_context(_seen(tf, name, functools.partial(_at_end, observer, end)))
        yield


def embeddings(call: Call, observer: Observer) -> None:
    """Report the ids that an embedding was given; does nothing for any other layer."""
    layer = call.module
    if isinstance(layer, keras.layers.Embedding) and call.tensors and tf.executing_eagerly():
        padding = 0 if layer.mask_zero else None
        observer.ids(call.path, array(call.tensors[0]), layer.input_dim, padding)


def _seen(owner: Any, name: str, see: Callable[..., None]) -> Any:
    """Return a patch of a function, by which `see` gets the arguments before each call."""
    function = getattr(owner, name)

    @functools.wraps(function)
    def seen(*args: Any, **kwargs: Any) -> Any:
        if tf.executing_eagerly():
            see(*args, **kwargs)
        return function(*args, **kwargs)

    return mock.patch.object(owner, name, seen)


def _at_kinks(observer: Observer, name: str, limits: tuple[float | None, float | None], *args: Any, **kw: Any) -> None:
    x = args[0] if args else kw.get("features")
    if _has_values(x):
        observer.kinks(name, _where(), array(x), *limits)


def _at_clip(observer: Observer, *args: Any, **kwargs: Any) -> None:
    names = ("t", "clip_value_min", "clip_value_max")
    x, lower, upper = (
        args[position] if len(args) > position else kwargs.get(name) for position, name in enumerate(names)
    )
    limits = [_number(limit) for limit in (lower, upper)]
    if _has_values(x) and any(limit is not None for limit in limits):
        observer.kinks("clamp", _where(), array(x), *limits)


def _at_end(observer: Observer, end: str, *args: Any, **kwargs: Any) -> None:
    x, limit = (args[position] if len(args) > position else kwargs.get(name) for position, name in enumerate("xy"))
    number = _number(limit)
    if _has_values(x) and number is not None:
        observer.kinks("clamp", _where(), array(x), *((number, None) if end == "lower" else (None, number)))


def _at_where(observer: Observer, *args: Any, **kwargs: Any) -> None:
    condition = args[0] if args else kwargs.get("condition")
    if _has_values(condition) and condition.dtype == tf.bool:
        observer.mask(_where(), array(condition))


def _has_values(x: Any) -> bool:
    """Return whether x is an eager tensor with axes; scalars are mostly sizes."""
    return isinstance(x, tf.Tensor) and x.shape.rank not in (None, 0) and tf.executing_eagerly()


def _number(limit: Any) -> float | None:
    """Return a limit as a number; None if it is not a single number."""
    if isinstance(limit, tf.Tensor) and limit.shape.rank == 0 and tf.executing_eagerly():
        return float(limit)
    return float(limit) if isinstance(limit, (int, float)) else None


def _where() -> str:
    """Return the path of the layer that is being called; "" for the whole model."""
    path = calls.innermost()
    return path if path and path != MODEL else ""
