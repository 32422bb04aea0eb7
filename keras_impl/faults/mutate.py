"""Tools for planting faults: each replaces something for the length of a run."""

import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

import keras
import tensorflow as tf

from keras_impl.record import weights
from parity.core.arrays import Floats

Patches = Callable[[], list[AbstractContextManager]]


def replaced(owner: Any, name: str, change: Callable[[Any], Any]) -> Patches:
    """Replace an attribute by what `change` makes of it."""
    return lambda: [mock.patch.object(owner, name, change(getattr(owner, name)))]


def constant(kind: type, name: str, value: Any) -> Patches:
    """Give the named argument another value whenever an instance of `kind` is made."""

    def change(make: Callable[..., None]) -> Callable[..., None]:
        def changed(self: Any, *args: Any, **kwargs: Any) -> None:
            bound = inspect.signature(make).bind_partial(self, *args, **kwargs)
            bound.arguments.pop(name, None)
            make(*bound.args, **bound.kwargs, **{name: value})

        return changed

    return replaced(kind, "__init__", change)


def loaded(change: Callable[[str, Floats], Floats]) -> Patches:
    """Load into the model what `change` makes of each parameter's name and initial value."""

    def load(original: Callable[..., None]) -> Callable[..., None]:
        return lambda model, values: original(model, {name: change(name, value) for name, value in values.items()})

    return replaced(weights, "load", load)


def together(*several: Patches) -> Patches:
    """Combine several faults into one."""
    return lambda: [patch for patches in several for patch in patches()]


def unused(*variables: keras.Variable) -> tf.Tensor:
    """Return zero, so that variables that a fault leaves out still have a gradient: zeros."""
    return tf.add_n([tf.reduce_sum(variable.value) * 0 for variable in variables])
