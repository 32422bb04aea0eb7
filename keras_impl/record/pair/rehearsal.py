"""Trial passes for the survey: which masks would be drawn, which variables change, and which weights are unused."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_impl.record import calls, tree
from keras_impl.record.masks import OrderedMasks
from keras_impl.record.pair import build, layers
from keras_impl.record.pair.outputs import flat, named
from keras_impl.record.weights import array
from parity.config.schema import Case
from parity.core import random
from parity.core.errors import BackendError, UsageError
from parity.pairs.causes.training import changing, counting
from parity.pairs.trials import Trials
from parity.runtime.survey import Rehearsal
from parity.trace.keys import numbered


def rehearse(model: Any, case: Case, inputs: dict[str, tf.Tensor]) -> Rehearsal:
    """Return what training would draw and change; nothing for a model that cannot be trained: a run says why."""
    counted = _CountingMasks(case.seed)
    drawn: dict[str, int] = {}
    repeats: Counter[str] = Counter()

    def on_return(called: calls.Call, outputs: Any) -> None:
        path = called.path
        for _ in flat(outputs) if tf.executing_eagerly() else ():
            drawn[numbered(path, repeats[path])] = len(counted.sizes)
            repeats[path] += 1

    states = [_untrained(model)]
    try:
        with counted.drawn(model), calls.observed(tree.inner(model), lambda _: None, on_return):
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
    return _CountingMasks(case.seed).drawn(model, training)


class _CountingMasks(OrderedMasks):
    """Masks that drop nothing; `sizes` lists the number of elements of each mask."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, lambda shape: None)
        self.sizes: list[int] = []

    def _dropped(self, x: tf.Tensor, rate: float, state: Any, shape: tuple[int, ...]) -> tf.Tensor:
        self.sizes.append(int(tf.size(x)))
        return x


def _untrained(model: Any) -> dict[str, np.ndarray]:
    """Return copies of variables neither trained nor statistics, and of the states of stateful recurrent layers."""
    untrained = {
        item.description.name: item.variable
        for item in layers.variables(model)
        if not item.description.trainable and not item.description.statistic
    }
    for path, layer in tree.named(model).items():
        states = keras.tree.flatten(layer.states) if isinstance(layer, keras.layers.RNN) and layer.stateful else []
        untrained |= {f"{path}/state_{number}": state for number, state in enumerate(states) if state is not None}
    return {name: array(variable).copy() for name, variable in untrained.items()}


NOTHING = 2.0**-30  # in float64, what is smaller than this part of the largest value is left by rounding


def unused(model: Any, case: Case, inputs: dict[str, tf.Tensor]) -> list[str]:
    """Return the names of trained weights that no compared output depends on, and the statistics of their layers."""
    return _Trials(model, case, inputs).unused()


def still(model: Any, case: Case, inputs: dict[str, tf.Tensor]) -> list[str]:
    """Return the names of trained weights that are zeros and remain so, such as a bias before a batch norm.

    In training no compared output depends on them: they get no gradient but rounding, and other values change nothing.
    """
    trials = _Trials(model, case, inputs)
    trials.training = True
    zeros = [name for name in trials.trained if not array(trials.weights[name]).any()]
    if not zeros:
        return []
    try:
        left, outputs = trials.without_slope(zeros)
        return left if left and trials.change_nothing(left, outputs, NOTHING) else []
    except (UsageError, BackendError):
        return []


class _Trials(Trials):
    """Calls of a model without dropping."""

    def __init__(self, model: Any, case: Case, inputs: dict[str, tf.Tensor]) -> None:
        self.model, self.inputs = model, inputs
        held = [each for each in layers.variables(model) if not each.description.fixed]
        trained = [each.description.name for each in held if not each.description.statistic]
        weights = {each.description.name: each.variable for each in held}
        super().__init__(case, weights, trained, "/", array)

    def _outputs(self) -> list[tf.Tensor]:
        """Return the outputs that are compared, and the losses that layers have added."""
        with without_dropping(self.model, self.case):
            returned = build.call(self.model, self.case.model, self.inputs, self.training)
        outputs = [output for _, output in named(self.case.model, returned)]
        return [*outputs, *map(tf.convert_to_tensor, getattr(self.model, "losses", []))]

    def _without_gradient(self, names: Sequence[str]) -> tuple[list[str], list[tf.Tensor]]:
        held = [self.weights[name] for name in names]
        with tf.GradientTape(watch_accessed_variables=False) as tape:  # of these alone: what else is trained takes time
            for each in held:
                tape.watch(each.value if isinstance(each, keras.Variable) else each)
            outputs = self._outputs()
        if not all(output.dtype.is_floating or output.dtype.is_complex for output in outputs):
            return [], outputs
        with build.user_errors(f"keras={self.case.model.keras}: backward fails"):
            gradients = tape.gradient(outputs, held)
        return [name for name, gradient in zip(names, gradients, strict=True) if gradient is None], outputs

    def without_slope(self, names: Sequence[str]) -> tuple[list[str], list[tf.Tensor]]:
        """Return the weights whose gradient, of a sum of all outputs with random weights, is rounding; and outputs."""
        with tf.GradientTape() as tape:
            outputs = self._outputs()
            floats = [tf.cast(output, tf.float64) for output in outputs if output.dtype.is_floating]
            noise = [random.normal(self.case.seed, f"still/{i}", tuple(each.shape)) for i, each in enumerate(floats)]
            total = sum(map(tf.reduce_sum, map(tf.multiply, floats, noise)))
        with build.user_errors(f"keras={self.case.model.keras}: backward fails"):
            gradients = tape.gradient(total, {name: self.weights[name] for name in self.trained})
        slopes = {name: np.abs(array(given)).max() for name, given in gradients.items() if given is not None}
        limit = NOTHING * max(slopes.values(), default=0.0)
        return [name for name in names if name in slopes and slopes[name] <= limit], outputs

    @contextmanager
    def _moved(self, noise: Mapping[str, np.ndarray]) -> Iterator[None]:
        own = {name: np.array(array(self.weights[name])) for name in noise}
        for name, value in own.items():
            self.weights[name].assign((value + noise[name]).astype(value.dtype))
        yield
        for name, value in own.items():
            self.weights[name].assign(value)
