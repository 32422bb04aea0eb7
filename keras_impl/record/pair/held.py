"""What a run holds as the other side has it, where a pair accepts the difference: it hides nothing behind it then."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import tensorflow as tf
from keras.optimizers import Adagrad, RMSprop
from keras.src import ops
from keras.src.backend.tensorflow.optimizer import TFOptimizer

from parity.core.patches import Original, applied, around, pushed


@contextmanager
def dense_gradients(is_held: bool) -> Iterator[list[str]]:
    """Let optimizers apply dense gradients if `is_held`; yield a list of the variables that had lists of rows instead.

    Keras's optimizers square the rows of one id before they are added (keras/src/optimizers/adam.py).
    """
    made: list[str] = []

    def update(apply: Original, optimizer: Any, gradients: Sequence[Any], variables: Sequence[Any], rate: Any) -> None:
        of_rows = [isinstance(each, tf.IndexedSlices) for each in gradients]
        made.extend(each.name for each, is_of_rows in zip(variables, of_rows, strict=True) if is_of_rows)
        dense = [tf.convert_to_tensor(each) if rows else each for each, rows in zip(gradients, of_rows, strict=True)]
        apply(optimizer, dense, variables, rate)

    with applied([around(TFOptimizer, "_backend_update_step", update)] if is_held else []):
        yield made


@contextmanager
def epsilons(held: Collection[str]) -> Iterator[set[str]]:
    """Let Adagrad and RMSprop add their epsilon to the root, as torch's do, of which the cause is `held`; yield those.

    Keras's add it within the root (keras/src/optimizers/adagrad.py, rmsprop.py).
    """
    reached, within = set[str](), list[float]()

    def step(update: Original, optimizer: Any, *args: Any) -> None:
        cause = f"{type(optimizer).__name__.lower()}.epsilon_placement"
        if cause not in held:
            return update(optimizer, *args)
        reached.add(cause)
        with pushed(within, optimizer.epsilon):
            return update(optimizer, *args)

    def add(add: Original, *given: Any, **named: Any) -> Any:
        is_within = bool(within) and len(given) == 2 and given[1] is within[-1]
        return ops.square(ops.sqrt(given[0]) + given[1]) if is_within else add(*given, **named)

    patches = [around(kind, "update_step", step) for kind in (Adagrad, RMSprop)] + [around(ops, "add", add)]
    with applied(patches if held else []):
        yield reached
