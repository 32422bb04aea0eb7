"""Faults of dropout: other masks, another rate, or dropout where there should be none."""

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from keras_impl.dropout import Key, keep
from keras_impl.faults.mutate import Patches, constant, replaced
from keras_impl.record import masks
from keras_impl.record.masks import Masks
from keras_impl.strategies import single
from parity.core import random


def _frameworks_own(attach: Callable[..., None]) -> Callable[..., None]:
    return lambda self, model, replica: None


def _as_replica_0(mask_key: Callable[..., tuple[int, int]]) -> Callable[..., tuple[int, int]]:
    return lambda seed, name, replica: mask_key(seed, name, 0)


def _as_step_0(on_step: Callable[[Masks], None]) -> Callable[[Masks], None]:
    return lambda self: self._calls.clear()


def _unscaled(dropout: Callable[..., tf.Tensor]) -> Callable[..., tf.Tensor]:
    def changed(x: tf.Tensor, numbers: tf.Tensor, rate: float, key: Key) -> tf.Tensor:
        return x * tf.cast(keep(numbers, rate, key), x.dtype)

    return changed


def _in_training(evaluate: Callable[..., tf.Tensor]) -> Callable[..., tf.Tensor]:
    def changed(model: keras.Model, inputs: tuple[Any, ...]) -> tf.Tensor:
        return model(single.unpacked(inputs), training=True)

    return changed


FAULTS: dict[str, Patches] = {
    "dropout.generator": replaced(Masks, "attach", _frameworks_own),
    "dropout.replicas": replaced(random, "mask_key", _as_replica_0),
    "dropout.step": replaced(Masks, "on_step", _as_step_0),
    "dropout.rate": constant(keras.layers.Dropout, "rate", 0.2),
    "dropout.scale": replaced(masks, "dropout", _unscaled),
    "evaluation.mode": replaced(single, "evaluate", _in_training),
}
