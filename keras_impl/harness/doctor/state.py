"""What a step changes, put back: after steps that were only looked at, the next one is as if there had been none.

That is every tf.Variable alive (weights, slots, seeds, metrics), and the sources of random numbers. A variable that a
step makes, of a layer or an optimizer at its first call, stays, with the value that it was made with. What the
program keeps in Python's own objects, and how far it has read its data, nobody can know.
"""

import copy
import gc
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context
from tensorflow.python.framework import ops
from tensorflow.python.ops import stateful_random_ops
from tensorflow.python.ops.resource_variable_ops import BaseResourceVariable

Values = dict[int, tuple[tf.Variable, tf.Tensor]]  # by the id of the handle, which several may share


@contextmanager
def kept() -> Iterator[None]:
    """Whatever is done within leaves no trace in variables and random numbers."""
    values, put_random_back = _values(_alive()), _random_state()
    with _noting_new(values):
        try:
            yield
        finally:
            for variable, value in values.values():
                variable.assign(value)
            put_random_back()


def _values(variables: Iterator[tf.Variable]) -> Values:
    """TensorFlow copies a value that is held, as these are, before it changes a variable in place."""
    return {id(variable.handle): (variable, variable.read_value()) for variable in variables}


def _alive() -> Iterator[tf.Variable]:
    """Every variable that has a value. issubclass would take five times as long."""
    kinds = set(_kinds(BaseResourceVariable))
    return (each for each in gc.get_objects() if type(each) in kinds and _has_value(each))


def _kinds(kind: type) -> Iterator[type]:
    yield kind
    for below in kind.__subclasses__():
        yield from _kinds(below)


def _has_value(variable: tf.Variable) -> bool:
    """A variable of a graph has none, nor does one that is not made to the end."""
    return isinstance(getattr(variable, "_handle", None), ops.EagerTensor) and bool(variable.is_initialized())


def _noting_new(values: Values) -> Any:
    """A patch: variables that are made within it are added, with their first values."""
    initialize = BaseResourceVariable.__init__

    def noted(variable: tf.Variable, *args: Any, **kwargs: Any) -> None:
        initialize(variable, *args, **kwargs)
        if id(variable.handle) not in values and _has_value(variable):
            values[id(variable.handle)] = variable, variable.read_value()

    return mock.patch.object(BaseResourceVariable, "__init__", noted)


def _random_state() -> Callable[[], None]:
    """A function that puts the sources of random numbers back. Keras's seed generators are variables."""
    python, array, generator = random.getstate(), np.random.get_state(), stateful_random_ops.global_generator
    of_ops = copy.deepcopy(_seeds())

    def put_back() -> None:
        random.setstate(python)
        np.random.set_state(array)
        stateful_random_ops.global_generator = generator
        for name in _seeds():
            delattr(context.context(), name)
        vars(context.context()).update(of_ops)
        # Kernels count the numbers that they have given out.
        context.context().clear_kernel_cache()

    return put_back


def _seeds() -> dict[str, Any]:
    """The seed that the program set, and what draws each op's from it: there only if it did."""
    return {name: value for name, value in vars(context.context()).items() if name in ("_seed", "_rng")}
