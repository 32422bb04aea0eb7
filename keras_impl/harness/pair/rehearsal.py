"""Forward passes in training mode that drop nothing: where masks would be drawn, and which variables they change."""

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
    """`see` is to be told of every call of a layer while `rehearse` runs."""

    def __init__(self, case: Case):
        self._counted = _Counted(case.seed, lambda shape: None)
        self._drawn: dict[str, int] = {}
        self._repeats: Counter[str] = Counter()

    def see(self, call: Called) -> None:
        """One call of a layer."""
        for _ in call.outputs:
            number = self._repeats[call.path]
            self._repeats[call.path] += 1
            self._drawn[f"{call.path}#{number}" if number else call.path] = len(self._counted.sizes)

    def rehearse(self, model: Any, case: Case, inputs: dict[str, tf.Tensor]) -> Rehearsal:
        """What training would draw and change. Nothing of a model that cannot run in training mode: training tells."""
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


class _Counted(OrderedMasks):
    """Masks that drop nothing. `sizes`: for each the elements of the tensor that it is for."""

    def __init__(self, seed: int, axes: Any):
        super().__init__(seed, axes)
        self.sizes: list[int] = []

    def _dropped(self, x: tf.Tensor, ones: tf.Tensor | None, rate: float) -> tf.Tensor:
        self.sizes.append(int(tf.size(x if ones is None else ones)))
        return x


def _untrained(model: Any) -> dict[str, np.ndarray]:
    """The variables that are neither trained nor a norm's statistics, as they are now."""
    held = (one for one in layers.variables(model) if not one.told.trainable and not one.told.statistic)
    return {one.told.name: values.array(one.variable).copy() for one in held}
