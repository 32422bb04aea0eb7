"""A user's model that is built once and called many times, on varied inputs, in inference or training mode.

An observer is told the values at which it branches: at kinks, in masks, and as ids of embeddings. From them the report
says which branches of the model the inputs have reached. Keras's activations are made of TensorFlow's functions, which
a user's layers may call directly as well: so these are wrapped.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any
from unittest import mock

import keras
import numpy as np
import tensorflow as tf
from keras.src import backend

from keras_impl.instruments import source
from keras_impl.record import calls, precision, tree
from keras_impl.record.masks import Order, OrderedMasks
from keras_impl.record.pair import build, values
from keras_impl.record.pair.first_call import ready
from keras_impl.record.pair.layers import usual
from keras_impl.record.pair.outputs import laid_out, ordered
from keras_impl.record.pair.sources import noted_at_creation
from keras_impl.record.weights import array
from parity.core.arrays import Floats
from parity.core.patches import applied, wrapping
from parity.data.masks import Drawing
from parity.pairs.vary.coverage import Draw, Observer
from parity.runtime.job import VaryJob
from parity.trace.keys import MODEL


@contextmanager
def opened(job: VaryJob, at: str, weights: Mapping[str, Floats], given: dict[str, np.ndarray]) -> Iterator["Instance"]:
    """Build the model with these weights, as for a recorded run, given the pair's inputs; yield it as an Instance."""
    halves, attempts = job.pair, []

    @contextmanager
    def watched() -> Iterator[None]:
        with noted_at_creation(source.nearest) as lines:
            attempts.append(lines)
            yield

    keras.utils.clear_session()
    with precision.policy(at), precision.promoted(at):
        model = ready(job.case, at, halves.search, given, watched)
        yield Instance(job, model, values.Weights.loaded(model, halves, weights), attempts[-1])


class Instance:
    """A built model, with the values that its untrained variables had before the first call.

    `masks`: those of a training. `lines`: "file:line" of the user's code that made each layer and operation, by id().
    """

    def __init__(self, job: VaryJob, model: Any, weights: values.Weights, lines: dict[int, str]) -> None:
        self.case, self.pair, self.model, self.weights, self.lines = job.case, job.case.model, model, weights, lines
        self._layouts = job.pair.layouts
        self._axes = {match.keras: match.axes for match in job.pair.matches}
        self._usual = usual(job.pair, self.pair, weights.torch)
        buffers = [item.variable for item in weights.variables if not item.description.trainable]
        self._buffers = [(variable, tf.identity(variable)) for variable in buffers]
        self._state = values.python_state(model)
        self._draws = job.pair.draws
        self.masks = OrderedMasks(job.case.seed, self._axes_here).holding(self.pair).in_order(self._draws)
        self._observer: Observer | None = None
        self.drawing = Drawing()
        calls.observed(tree.inner(model), lambda _: None, self._see)

    def call(
        self, inputs: dict[str, np.ndarray], training: bool | None, observer: Observer
    ) -> list[tuple[str, np.ndarray]]:
        """Return the model's outputs by name; in training mode its dropout draws shared masks.

        Without `training` the model is called as users call it.

        Raises UsageError and BackendError for inputs that the model does not take.
        """
        self._observer = observer
        masks = _NotifyingMasks(self.case.seed, self._axes_here, observer)
        with self._drawn(masks, bool(training)), observed(observer), calls.entered(MODEL):
            outputs = build.call(self.model, self.pair, build.tensors(self.pair, inputs), training)
        observer.states |= masks.repeats.states
        laid = laid_out(self.pair, ordered(outputs, self.weights.torch.keys(bool(training))), self._layouts)
        return [(output.key, array(output.canonical)) for output in laid]

    def _drawn(self, masks: OrderedMasks, training: bool) -> AbstractContextManager[None]:
        """Return a context in which the model draws shared masks."""
        masks = masks.holding(self.pair).in_order(self._draws)
        return self.drawing.by(masks, partial(masks.drawn, self.model, training))

    def reset(self) -> None:
        """Give all that a call may change the value that it had before the first call."""
        self._state.restore()
        self.reset_variables()

    def reset_variables(self) -> None:
        """Give the untrained variables the values that they had before the first call."""
        for variable, value in self._buffers:
            variable.assign(value)

    def _axes_here(self, shape: tuple[int, ...]) -> Order | None:
        """Return the axes in torch's order of a tensor in the layer that is being called; None if nothing is known."""
        axes = self._axes.get(calls.innermost() or MODEL)
        return axes if axes and len(axes) == len(shape) else self._usual(shape)

    def _see(self, call: calls.Call, outputs: Any) -> None:
        if self._observer is not None:
            embeddings(call, self._observer)


class _NotifyingMasks(OrderedMasks):
    """Shared masks, with the observer notified of each draw."""

    def __init__(self, seed: int, axes: Callable[[tuple[int, ...]], Order | None], observer: Observer) -> None:
        super().__init__(seed, axes)
        self.observer = observer

    def _drop(self, x: tf.Tensor, rate: float, *args: Any) -> Any:
        if rate:
            self.observer.draws.append(Draw(float(rate), int(tf.size(x))))
        return super()._drop(x, rate, *args)


# Functions with kinks at fixed values: the lower and the upper one.
KINKS: dict[str, tuple[float | None, float | None]] = {
    **dict.fromkeys(("relu", "leaky_relu", "elu", "selu"), (0.0, None)),
    "relu6": (0.0, 6.0),
}


def observed(observer: Observer) -> AbstractContextManager[None]:
    """Return a context in which the arguments of the model's branching functions are reported."""
    seen = [
        *((tf.nn, name, partial(_at_kinks, observer, name, limits)) for name, limits in KINKS.items()),
        (tf, "clip_by_value", partial(_at_clip, observer)),
        # Not tf.where, which Keras's own functions use internally; a model's own choices go through ops.where.
        (backend.numpy, "where", partial(_at_where, observer)),
        (tf, "maximum", lambda x, lower, *_: _at_clip(observer, x, lower, None)),
        (tf, "minimum", lambda x, upper, *_: _at_clip(observer, x, None, upper)),
    ]
    functions = ((owner, name, wrapping(_seen, getattr(owner, name), see)) for owner, name, see in seen)
    return applied(mock.patch.object(*function) for function in functions)


def embeddings(call: calls.Call, observer: Observer) -> None:
    """Report the ids that an embedding was given; does nothing for any other layer."""
    layer = call.module
    if isinstance(layer, keras.layers.Embedding) and call.tensors and tf.executing_eagerly():
        padding = 0 if layer.mask_zero else None
        observer.ids(call.path, array(call.tensors[0]), layer.input_dim, padding)


def _seen(function: Callable[..., Any], see: Callable[..., None], /, *args: Any, **kwargs: Any) -> Any:
    """Call a function; `see` gets the arguments before, in their order."""
    if tf.executing_eagerly():
        see(*inspect.signature(function).bind(*args, **kwargs).arguments.values())
    return function(*args, **kwargs)


def _at_kinks(observer: Observer, name: str, limits: tuple[float | None, float | None], x: Any, *_: Any) -> None:
    if _has_values(x):
        observer.kinks(name, _where(), array(x), *limits)


def _at_clip(observer: Observer, x: Any, lower: Any, upper: Any, *_: Any) -> None:
    limits = [_number(limit) for limit in (lower, upper)]
    if _has_values(x) and any(limit is not None for limit in limits):
        observer.kinks("clamp", _where(), array(x), *limits)


def _at_where(observer: Observer, condition: Any, *_: Any) -> None:
    if _has_values(condition) and condition.dtype == tf.bool:
        observer.mask(_where(), array(condition))


def _has_values(x: Any) -> bool:
    """Return whether x is an eager tensor with axes; scalars are mostly sizes."""
    return isinstance(x, tf.Tensor) and x.shape.rank not in (None, 0) and tf.executing_eagerly()


def _number(limit: Any) -> float | None:
    """Return a limit as a number; None if it is not a single number."""
    if isinstance(limit, tf.Tensor) and limit.shape.rank == 0 and tf.executing_eagerly():
        return float(limit)
    return float(limit) if isinstance(limit, (int, float)) else None


def _where() -> str:
    """Return the path of the layer that is being called; "" for the whole model."""
    path = calls.innermost()
    return path if path and path != MODEL else ""
