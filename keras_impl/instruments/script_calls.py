"""How a training script calls its optimizer, `train_on_batch` and gradient tapes, and the copies of its model."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import tensorflow as tf
from keras.src.optimizers.base_optimizer import BaseOptimizer
from keras.src.trainers.data_adapters import data_adapter_utils

from parity.core.patches import around

EXCLUDED = "_exclude_from_weight_decay"  # what begins so is not in an optimizer's config


class Tapes(list[tf.GradientTape]):
    """The tapes of a script that record, the innermost last."""

    def patches(self) -> Iterator[AbstractContextManager[Any]]:
        """Yield what has to be patched while the script runs."""
        yield around(tf.GradientTape, "__enter__", self._on_enter)
        yield around(tf.GradientTape, "__exit__", self._on_exit)

    def pause(self) -> None:
        """Let none of them record until they `go_on`."""
        for tape in reversed(self):
            tape._pop_tape()

    def go_on(self) -> None:
        """Let them record again."""
        for tape in self:
            tape._push_tape()

    def _on_enter(self, enter: Callable[..., Any], tape: tf.GradientTape) -> Any:
        self.append(tape)
        return enter(tape)

    def _on_exit(self, leave: Callable[..., Any], tape: tf.GradientTape, *args: Any) -> Any:
        self.remove(tape)
        return leave(tape, *args)


Copy = tuple[Any, Any]  # a layer, and the model that it is a copy of


def copies(models: Iterable[Any], layers: Sequence[Any]) -> list[Copy]:
    """Return the layers beside models whose weights are equal to all of a model's, such as a target network."""
    return [(each, of) for of in models if of.built for each in layers if each is not of and _holds(each, of)]


def copy_to(pairs: Iterable[Copy]) -> list[Copy]:
    """Give the weights of models to their copies, which are left to themselves then: none is returned."""
    for each, of in pairs:
        for variable, own in zip(each.weights, of.weights, strict=True):
            variable.assign(own)
    return []


def _holds(layer: Any, model: Any) -> bool:
    if not set(map(id, layer.weights)).isdisjoint(map(id, model.weights)):  # as what is within a Sequential has
        return False
    weights = [list(map(tf.convert_to_tensor, each.weights)) for each in (layer, model)] if layer.built else [[], []]
    return 0 < len(weights[0]) == len(weights[1]) and all(map(np.array_equal, *weights))


def batch_of(model: Any, x: Any, y: Any, sample_weight: Any, class_weight: Any) -> Any:
    """Return the batch that `train_on_batch` gives to the train_step of a model, which it builds."""
    if class_weight is not None:
        sample_weight = data_adapter_utils.class_weight_to_sample_weights(y, class_weight)
    given = data_adapter_utils.pack_x_y_sample_weight(x, y, sample_weight)
    batch = tf.nest.map_structure(tf.convert_to_tensor, given)
    model._maybe_symbolic_build(data_batch=batch)
    return batch


def another(optimizer: BaseOptimizer) -> BaseOptimizer:
    """Return a new optimizer like one that a script has made."""
    again = type(optimizer).from_config(optimizer.get_config())
    vars(again).update({name: value for name, value in vars(optimizer).items() if name.startswith(EXCLUDED)})
    return again
