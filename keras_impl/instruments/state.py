"""Restores what an observed step changes, so that the next step runs as if there had been none.

Restored are all tf.Variables alive (weights, slots, seeds, metrics), and the random number generators. A variable that
a layer or optimizer creates at its first call remains, with its initial value. Not restored is what the program keeps
in Python objects, and how far it has read its data: that cannot be known.
"""

import copy
import gc
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context
from tensorflow.python.framework import ops
from tensorflow.python.ops import stateful_random_ops
from tensorflow.python.ops.resource_variable_ops import BaseResourceVariable

from parity.core.patches import around
from parity.core.plain import subclasses


@contextmanager
def changes_undone() -> Iterator[None]:
    """Undo at the end of the block what it changed in variables and random number generators."""
    kinds = set(subclasses(BaseResourceVariable))  # isinstance would take five times as long
    alive = [object_ for object_ in gc.get_objects() if type(object_) in kinds and _has_value(object_)]
    # By id of the handle, which several variables may share; new ones are added, with their initial values.
    values = {id(variable.handle): (variable, variable.read_value()) for variable in alive}
    restore_random = _random_state()

    def initialised(initialise: Callable[..., None], variable: tf.Variable, *args: Any, **kwargs: Any) -> None:
        initialise(variable, *args, **kwargs)
        if id(variable.handle) not in values and _has_value(variable):
            values[id(variable.handle)] = variable, variable.read_value()

    with around(BaseResourceVariable, "__init__", initialised):
        try:
            yield
        finally:
            for variable, value in values.values():
                variable.assign(value)
            restore_random()


def _has_value(variable: tf.Variable) -> bool:
    """Return whether the variable has a value; those of graphs, and unfinished ones, have none."""
    return isinstance(getattr(variable, "_handle", None), ops.EagerTensor) and bool(variable.is_initialized())


def _random_state() -> Callable[[], None]:
    """Return a function that restores the random number generators; Keras's seed generators are variables."""
    python, array, generator = random.getstate(), np.random.get_state(), stateful_random_ops.global_generator
    of_ops = copy.deepcopy(_seeds())

    def put_back() -> None:
        random.setstate(python)
        np.random.set_state(array)
        stateful_random_ops.global_generator = generator
        for name in _seeds():
            delattr(context.context(), name)
        vars(context.context()).update(of_ops)
        # Kernels keep count of the numbers that they have drawn.
        context.context().clear_kernel_cache()

    return put_back


def _seeds() -> dict[str, Any]:
    return {name: value for name, value in vars(context.context()).items() if name in ("_seed", "_rng")}
