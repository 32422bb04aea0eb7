"""What a user's model and the files of its program keep in Python beside its weights: seen, and given back."""

from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_impl.record import tree
from parity.core.python_state import Framework, PythonState
from parity.doctor import program


def python_state(model: Any, further: Mapping[str, Any] = {}) -> PythonState:
    """Return what the model's layers, further objects, and the files of the program keep now, beside weights."""
    objects = {path: each for path, each in further.items() if hasattr(each, "__dict__")}
    return PythonState(FRAMEWORK, tree.named(model) | objects, program.modules())


def _is_variable(value: Any) -> bool:
    return isinstance(value, (keras.Variable, tf.Variable))


def _is_part(value: Any) -> bool:
    is_trained = _is_variable(value) and value.trainable
    return is_trained or isinstance(value, (keras.Layer, tf.Module, keras.optimizers.Optimizer))


def _numbers(value: Any) -> np.ndarray | None:
    is_tensor = _is_variable(value) or (isinstance(value, tf.Tensor) and hasattr(value, "numpy"))
    return np.asarray(value.numpy()) if is_tensor else None


def _keep(value: Any) -> Callable[[], object]:
    if not _is_variable(value):
        return lambda: None  # a tensor does not change
    before = tf.identity(value)
    return lambda: value.assign(before)


OWN = {*vars(keras.Model()), "call", "build"}
FRAMEWORK = Framework(
    is_own=lambda name: name in OWN or name.startswith("_self_"),  # as TensorFlow names what tracks attributes
    is_part=_is_part,
    numbers=_numbers,
    keep=_keep,
    is_state=lambda value: not _is_variable(value),  # a graph keeps variables
)
