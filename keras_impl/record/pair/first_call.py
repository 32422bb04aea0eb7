"""The first call of a Keras model, which makes its weights, and what else such a call leaves behind."""

from typing import Any

import tensorflow as tf

from keras_impl.record import tree
from keras_impl.record.pair.build import call
from parity.config.pair import Pair


def make_weights(model: Any, pair: Pair, inputs: dict[str, tf.Tensor]) -> None:
    """Call the model once, for layers that wait for a first call with their weights. torch's half needs no such call.

    Numbers that count the calls (Keras itself may call a model twice) are then what they were: those that one more
    call changes too, unlike what a layer's `build` sets. Raises UsageError and BackendError.
    """
    before = _numbers(model)
    call(model, pair, inputs)
    made = _numbers(model)
    if not any(made.get(key) != value for key, value in before.items()):
        return
    call(model, pair, inputs)
    again = _numbers(model)
    for layer in tree.named(model).values():
        for name in vars(layer):
            key = id(layer), name
            if key in before and again.get(key) != made.get(key):
                setattr(layer, name, before[key])


def _numbers(model: Any) -> dict[tuple[int, str], int | float]:
    """Return the attributes of the model and its layers that are numbers, by layer and name."""
    named = [(id(layer), name, value) for layer in tree.named(model).values() for name, value in vars(layer).items()]
    return {(layer, name): x for layer, name, x in named if isinstance(x, (int, float)) and not isinstance(x, bool)}
