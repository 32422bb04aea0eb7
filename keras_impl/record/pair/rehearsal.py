"""Trial passes in training mode without dropping: which masks would be drawn, and which variables change."""

from collections import Counter
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import tensorflow as tf

from keras_impl.record import calls, tree
from keras_impl.record.calls import Call
from keras_impl.record.masks import OrderedMasks
from keras_impl.record.pair import build, layers
from keras_impl.record.pair.outputs import flat
from keras_impl.record.weights import array
from parity.config.schema import Case
from parity.core.errors import BackendError, UsageError
from parity.pairs.causes.training import changing, counting
from parity.trace.survey import Rehearsal


def rehearse(model: Any, case: Case, inputs: dict[str, tf.Tensor]) -> Rehearsal:
    """Return what training would draw and change.

    The result is empty for a model that cannot run in training mode; a training run reports why.
    """
    counted = _CountingMasks(case.seed, lambda shape: None)
    drawn: dict[str, int] = {}
    repeats: Counter[str] = Counter()

    def on_return(called: Call, outputs: Any) -> None:
        path = called.path
        for _ in flat(outputs) if tf.executing_eagerly() else ():
            drawn[f"{path}#{repeats[path]}" if repeats[path] else path] = len(counted.sizes)
            repeats[path] += 1

    states, layers_by_path = [_untrained(model)], tree.named(model).items()
    try:
        with counted.drawn(layers_by_path), calls.observed(tree.inner(model), lambda _: None, on_return):
            build.call(model, case.model, inputs, True)
        states.append(_untrained(model))
        with without_dropping(model, case):
            build.call(model, case.model, inputs, True)
        states.append(_untrained(model))
    except (UsageError, BackendError):
        return Rehearsal()
    return Rehearsal(drawn=drawn, masks=counted.sizes, changing=changing(states), counting=counting(states))


def without_dropping(model: Any, case: Case, training: bool = True) -> AbstractContextManager[None]:
    """Return a context in which the model's dropouts drop nothing."""
    return _CountingMasks(case.seed, lambda shape: None).drawn(tree.named(model).items(), training)


class _CountingMasks(OrderedMasks):
    """Masks that drop nothing; `sizes` lists the number of elements of each mask."""

    def __init__(self, seed: int, axes: Any):
        super().__init__(seed, axes)
        self.sizes: list[int] = []

    def _dropped(self, x: tf.Tensor, ones: tf.Tensor | None, rate: float, state: Any) -> tf.Tensor:
        self.sizes.append(int(tf.size(x if ones is None else ones)))
        return x


def _untrained(model: Any) -> dict[str, np.ndarray]:
    """Return copies of the variables that are neither trained nor running statistics."""
    untrained = (
        item for item in layers.variables(model) if not item.description.trainable and not item.description.statistic
    )
    return {item.description.name: array(item.variable).copy() for item in untrained}
