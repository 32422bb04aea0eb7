"""Observes what a model's layers are given and return, by wrapping their `call`."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from keras_impl.harness import promotion
from keras_impl.harness.pair import layers
from keras_impl.harness.pair.outputs import flat
from parity.core.names import MODEL


class Called(NamedTuple):
    """One call of a layer: the tensors that went in, in the order of its arguments, and those that came out."""

    path: str
    inputs: list[tf.Tensor]
    outputs: list[tf.Tensor]


def watch(model: Any, see: Callable[[Called], None]) -> None:
    """Let `see` be called after every call of a layer in the model, from now on."""
    for path, layer in layers.called(model).items():
        layer.call = _watched(path, layer.call, see)


def whole(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call the whole model, so that promotions in it are attributed to the model."""
    return _within(MODEL, function, *args, **kwargs)


def _watched(path: str, call: Callable[..., Any], see: Callable[[Called], None]) -> Callable[..., Any]:
    signature = inspect.signature(call)

    @functools.wraps(call)
    def watched(*args: Any, **kwargs: Any) -> Any:
        given = list(flat(list(signature.bind(*args, **kwargs).arguments.values())))
        outputs = _within(path, call, *args, **kwargs)
        if tf.executing_eagerly():  # while a graph is traced there are no values
            see(Called(path, given, list(flat(outputs))))
        return outputs

    return watched


def _within(path: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    promotion.running.append(path)
    try:
        return function(*args, **kwargs)
    finally:
        promotion.running.pop()
