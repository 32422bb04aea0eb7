"""Mistakes planted on purpose, by name, so that tests can demand that they are found."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import keras
import tensorflow as tf

from keras_impl import optimizers
from keras_impl.models.residual_block import BatchNorm2d

Patches = Callable[[], list[mock._patch]]


def _constant(kind: type, name: str, value: float) -> Patches:
    """Instances of `kind` are made with another value of the named argument."""
    made = kind.__init__

    def other(self: Any, *args: Any, **kwargs: Any) -> None:
        made(self, *args, **{**kwargs, name: value})

    return lambda: [mock.patch.object(kind, "__init__", other)]


def _keras_adam() -> list[mock._patch]:
    def adam(rate: Any, beta_1: float, beta_2: float, epsilon: float, **_: Any) -> keras.optimizers.Adam:
        return keras.optimizers.Adam(rate, beta_1, beta_2, epsilon)

    return [mock.patch.object(optimizers, "Adam", adam)]


def _identity_relu() -> list[mock._patch]:
    layer = mock.patch.object(keras.layers.ReLU, "call", lambda self, x: x)
    return [layer, mock.patch.object(tf.nn, "relu", lambda x: x)]


def _rounded_dense() -> list[mock._patch]:
    def call(self: keras.layers.Dense, x: tf.Tensor, training: bool | None = None) -> tf.Tensor:
        product = tf.matmul(tf.cast(x, tf.bfloat16), tf.cast(self.kernel.value, tf.bfloat16))
        return tf.cast(product, x.dtype) + self.bias.value

    return [mock.patch.object(keras.layers.Dense, "call", call)]


# Name to the patches and the only precision that they are planted at ("" for all).
FAULTS: dict[str, tuple[Patches, str]] = {
    "layer_norm.epsilon": (_constant(keras.layers.LayerNormalization, "epsilon", 1.001e-5), ""),
    "batch_norm.momentum": (_constant(BatchNorm2d, "momentum", 0.99), ""),
    "adam.epsilon_placement": (_keras_adam, ""),
    "adamw.weight_decay": (_constant(optimizers.AdamW, "decay", 0.004), ""),
    "relu.dropped_in_float32": (_identity_relu, "float32"),
    "matmul.bfloat16_in_float32": (_rounded_dense, "float32"),
}


@contextmanager
def planted(fault: str, at: str) -> Iterator[None]:
    """The fault, if it is one of this precision, for the length of the block; none if it is ""."""
    patches, only = FAULTS[fault] if fault else (list, "")
    with ExitStack() as stack:
        if only in ("", at):
            for patch in patches():
                stack.enter_context(patch)
        yield
