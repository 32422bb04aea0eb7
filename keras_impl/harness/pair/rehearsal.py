"""Trial passes in training mode without dropping: which masks would be drawn, and which variables change."""

from collections import Counter
from typing import Any

import numpy as np
import tensorflow as tf

from keras_impl.harness.masks import OrderedMasks
from keras_impl.harness.pair import build, layers, values
from keras_impl.harness.pair.calls import Called
from parity.config.schema import Case
from parity.core.errors import BackendError, UsageError
from parity.pairs.moved import changing, counting
from parity.trace.survey import Rehearsal


class Rehearsing:
    """A rehearsal; `see` must be called with every call of a layer while `rehearse` runs."""

    def __init__(self, case: Case):
        self._counted = _CountingMasks(case.seed, lambda shape: None)
        self._drawn: dict[str, int] = {}
        self._repeats: Counter[str] = Counter()

    def see(self, call: Called) -> None:
        """Note one call of a layer."""
        for _ in call.outputs:
            number = self._repeats[call.path]
            self._repeats[call.path] += 1
            self._drawn[f"{call.path}#{number}" if number else call.path] = len(self._counted.sizes)

    def rehearse(self, model: Any, case: Case, inputs: dict[str, tf.Tensor]) -> Rehearsal:
        """Return what training would draw and change.

        The result is empty for a model that cannot run in training mode; a training run reports why.
        """
        states = [_untrained(model)]
        try:
            with self._counted.drawn(layers.named(model).items()):
                build.call(model, case.model, inputs, True)
            states.append(_untrained(model))
            drawn, masks = dict(self._drawn), list(self._counted.sizes)
            with self._counted.drawn(layers.named(model).items()):
                build.call(model, case.model, inputs, True)
            states.append(_untrained(model))
        except (UsageError, BackendError):
            return Rehearsal()
        return Rehearsal(drawn=drawn, masks=masks, changing=changing(states), counting=counting(states))


class _CountingMasks(OrderedMasks):
    """Masks that drop nothing; `sizes` lists the number of elements of each mask."""

    def __init__(self, seed: int, axes: Any):
        super().__init__(seed, axes)
        self.sizes: list[int] = []

    def _dropped(self, x: tf.Tensor, ones: tf.Tensor | None, rate: float) -> tf.Tensor:
        self.sizes.append(int(tf.size(x if ones is None else ones)))
        return x


def _untrained(model: Any) -> dict[str, np.ndarray]:
    """Return copies of the variables that are neither trained nor running statistics."""
    untrained = (
        item for item in layers.variables(model) if not item.description.trainable and not item.description.statistic
    )
    return {item.description.name: values.array(item.variable).copy() for item in untrained}
