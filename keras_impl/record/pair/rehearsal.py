"""Trial passes for the survey: which masks would be drawn, which variables change, and which weights are unused.

A weight is unused if no compared output and no loss of the layers' own passes a gradient to it, and none changes in a
single bit when the weight is given other values, both in inference and in training. The first alone proves nothing: a
weight behind stop_gradient has none and is used all the same. Nor does the second: a weight behind a ReLU that is
closed for these inputs changes nothing here, and yet it is used.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
import tensorflow as tf

from keras_impl.record import calls, tree
from keras_impl.record.calls import Call
from keras_impl.record.masks import OrderedMasks
from keras_impl.record.pair import build, layers
from keras_impl.record.pair.outputs import flat, named
from keras_impl.record.weights import array
from parity.config.schema import Case
from parity.core import random
from parity.core.errors import BackendError, UsageError
from parity.pairs.causes.training import changing, counting
from parity.runtime.survey import Rehearsal


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


MOST_ALONE = 16  # at most so many weights without a gradient are moved one by one
NOTHING = 2.0**-30  # in float64, what is smaller than this part of the largest value is left by rounding


def unused(model: Any, case: Case, inputs: dict[str, tf.Tensor]) -> list[str]:
    """Return the names of trained weights that no compared output depends on, and the statistics of their layers.

    There are none for a model that cannot be called in both modes, or whose operations have no gradient.
    """
    calls = _Calls(model, case, inputs)
    left = list(calls.weights)
    try:
        for training in (False, True):
            calls.training = training
            left = _unused(calls, left)
    except (UsageError, BackendError):
        return []
    return left


def still(model: Any, case: Case, inputs: dict[str, tf.Tensor]) -> list[str]:
    """Return the names of trained weights that are zeros and remain so, such as a bias before a batch norm.

    In training no compared output depends on them: they get no gradient but rounding, and other values change nothing.
    """
    calls = _Calls(model, case, inputs)
    calls.training = True
    zeros = [name for name in calls.trained if not array(calls.weights[name].variable).any()]
    try:
        left = calls.without_slope(zeros) if zeros else []
        return left if left and calls.change_nothing(left, NOTHING) else []
    except (UsageError, BackendError):
        return []


class _Calls:
    """Calls of a model without dropping; `trained` are the names of the weights that it trains, of all by name."""

    training = False

    def __init__(self, model: Any, case: Case, inputs: dict[str, tf.Tensor]) -> None:
        self.model, self.case, self.inputs = model, case, inputs
        held = {each.description.name: each for each in layers.variables(model)}
        self.trained = {name for name, each in held.items() if each.description.trainable}
        self.weights = {n: each for n, each in held.items() if n in self.trained or each.description.statistic}

    def outputs(self) -> list[tf.Tensor]:
        """Return the outputs that are compared, and the losses that layers have added."""
        with without_dropping(self.model, self.case):
            returned = build.call(self.model, self.case.model, self.inputs, self.training)
        outputs = [output for _, output in named(self.case.model, returned)]
        return [*outputs, *map(tf.convert_to_tensor, getattr(self.model, "losses", []))]

    def without_gradient(self, names: Iterable[str]) -> list[str]:
        """Return the weights to which no output passes a gradient; none if some output is of whole numbers."""
        wanted = list(names)
        with tf.GradientTape() as tape:
            outputs = self.outputs()
        if not all(output.dtype.is_floating or output.dtype.is_complex for output in outputs):
            return []
        with build.user_errors(f"keras={self.case.model.keras}: backward fails"):
            gradients = tape.gradient(outputs, [self.weights[name].variable for name in wanted])
        return [name for name, gradient in zip(wanted, gradients, strict=True) if gradient is None]

    def without_slope(self, names: Sequence[str]) -> list[str]:
        """Return the weights whose gradient, of a sum of all outputs with random weights, is rounding alone."""
        variables = {name: self.weights[name].variable for name in self.trained}
        with tf.GradientTape() as tape:
            outputs = [output for output in self.outputs() if output.dtype.is_floating]
            total = sum(tf.reduce_sum(self._weighted(*numbered)) for numbered in enumerate(outputs))
        with build.user_errors(f"keras={self.case.model.keras}: backward fails"):
            gradients = tape.gradient(total, variables)
        slopes = {name: np.abs(array(given)).max() for name, given in gradients.items() if given is not None}
        limit = NOTHING * max(slopes.values(), default=0.0)
        return [name for name in names if name in slopes and slopes[name] <= limit]

    def change_nothing(self, names: Sequence[str], limit: float = 0.0) -> bool:
        """Return whether all outputs stay the same when these weights are given other values.

        They do to the part `limit` of the largest value; or else to the last bit, and NaN is tried as well: it passes
        through what rounds.
        """
        before = [array(output) for output in self.outputs()]
        for scale in (1.0,) if limit else (1.0, math.nan):
            with self._moved(names, scale):
                after = [array(output) for output in self.outputs()]
            if len(before) != len(after) or not all(_same(*pair, limit) for pair in zip(before, after, strict=True)):
                return False
        return True

    def _weighted(self, number: int, output: tf.Tensor) -> tf.Tensor:
        noise = random.normal(self.case.seed, f"still/{number}", tuple(output.shape))
        return tf.cast(output, tf.float64) * tf.constant(noise, tf.float64)

    @contextmanager
    def _moved(self, names: Iterable[str], scale: float) -> Iterator[None]:
        own = {name: np.array(array(self.weights[name].variable)) for name in names}
        for name, value in own.items():
            noise = scale * random.normal(self.case.seed, f"unused/{name}", value.shape)
            self.weights[name].variable.assign((value + noise).astype(value.dtype))
        yield
        for name, value in own.items():
            self.weights[name].variable.assign(value)


def _unused(calls: _Calls, names: list[str]) -> list[str]:
    """Return those of these weights that are unused in one mode, statistics only of layers without a used weight."""
    alone = set(calls.without_gradient([name for name in names if name in calls.trained]))
    owners = {_layer(name) for name in alone} - {_layer(name) for name in calls.trained - alone}
    left = [name for name in names if name in alone or (name not in calls.trained and _layer(name) in owners)]
    if not left or calls.change_nothing(left):
        return left
    return [name for name in left if calls.change_nothing([name])] if len(left) <= MOST_ALONE else []


def _same(one: np.ndarray, other: np.ndarray, limit: float) -> bool:
    if not limit or one.shape != other.shape or one.dtype.kind != "f":
        return np.array_equal(one, other)
    return bool(np.abs(one - other).max(initial=0.0) <= limit * np.abs(one).max(initial=0.0))


def _layer(name: str) -> str:
    return name.rpartition("/")[0]
