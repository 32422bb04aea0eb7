"""The optimizer of a pair's training: made, its settings for each parameter, and what a step with it is seen to do.

It is a built-in one that the pair's file names, or the user's own. Of a step is seen what it differentiates, and the
gradients.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

import numpy as np
import tensorflow as tf
from keras.optimizers import SGD, Adadelta, Adagrad, Adam, Adamax, AdamW, LossScaleOptimizer, Nadam, Optimizer, RMSprop
from keras.optimizers.schedules import LearningRateSchedule
from keras.src.backend.tensorflow.optimizer import TFOptimizer
from keras.src.optimizers.base_optimizer import BaseOptimizer

from keras_impl import optimizers
from keras_impl.record.pair import build
from parity.config.pair import Pair
from parity.config.schema import Case
from parity.core.errors import UsageError
from parity.core.patches import Original, applied, around
from parity.core.program import load
from parity.trace.training import ParameterGroup


def made(
    case: Case, parameters: Sequence[Any], search: list[str], prepare: Callable[[Optimizer], None] = lambda _: None
) -> Optimizer:
    """Return a new optimizer of these variables: the built-in one, or the one that the user's function makes.

    `prepare` is called with it before it is built. Raises UsageError if that function returns something else.
    """
    text = case.model.train.keras_optimizer
    if not text:
        optimizer = optimizers.build(case)
    else:
        with build.user_errors(f"train.keras_optimizer={text} fails"):
            optimizer = load("train.keras_optimizer", text, search=search)()
        if not isinstance(optimizer, Optimizer):
            received = type(optimizer).__name__
            raise UsageError(
                f"train.keras_optimizer={text}: expected a keras.optimizers.Optimizer, received {received}"
            )
    prepare(optimizer)
    optimizer.build(list(parameters))
    return optimizer


def unwrapped(optimizer: Optimizer) -> Optimizer:
    """Return the optimizer that updates the weights: the one within a LossScaleOptimizer."""
    return unwrapped(optimizer.inner_optimizer) if isinstance(optimizer, LossScaleOptimizer) else optimizer


class Joint:
    """The optimizers of a training as one, in the order of the variables that they update.

    A step of the user's own may have several. Of those that were built for a variable, it is that with the fewest.
    """

    def __init__(self, optimizers: Iterable[Optimizer], variables: Iterable[Any]) -> None:
        held = {optimizer: [id(each) for each in optimizer._trainable_variables] for optimizer in optimizers}
        broad = sorted(held, key=lambda optimizer: -len(held[optimizer]))
        self._by_variable = {each: optimizer for optimizer in broad for each in held[optimizer]}
        in_order = dict.fromkeys(self._by_variable.get(id(each)) for each in variables)
        self.optimizers = [each for each in {**in_order, **held} if each is not None]
        self.first = self.optimizers[0]

    def groups(self, parameters: Mapping[str, Any]) -> list[ParameterGroup]:
        """Return the groups of all; none if the formula of one is not known."""
        own = ({name: of for name, of in parameters.items() if self.updates(each, of)} for each in self.optimizers)
        parts = list(map(groups, self.optimizers, own))
        return [group for part in parts for group in part] if all(parts) else []

    def updates(self, optimizer: Optimizer, variable: Any) -> bool:
        """Return whether one of the optimizers is that of a variable."""
        return self._by_variable.get(id(variable)) is optimizer


def groups(optimizer: Optimizer, parameters: Mapping[str, Any]) -> list[ParameterGroup]:
    """Return the groups of an optimizer's variables, by canonical names; none if its formula is not known.

    None either if it puts an average of the weights in their place between steps. A class that is derived from a known
    one may do otherwise than its settings say.
    """
    number = rate(optimizer)
    stated = next((SETTINGS[kind] for kind in type(optimizer).__mro__ if kind in SETTINGS), None)
    if stated is None or (optimizer.use_ema and optimizer.ema_overwrite_frequency) or number is None:
        return []
    read = {name: value(optimizer) if callable(value) else value for name, value in stated.items()}
    shared = {"learning_rate": number, **read}
    given = optimizer.weight_decay
    decays = {
        name: 0.0 if given is None or not optimizer._use_weight_decay(variable) else float(given)
        for name, variable in parameters.items()
    }
    made = [
        ParameterGroup(
            parameters=[name for name, own in decays.items() if own == decay],
            settings=shared | {"weight_decay": decay, "decay_form": "decoupled"},
        )
        for decay in dict.fromkeys(decays.values())
    ]
    return made if all(group.is_finite for group in made) else []


def rate(optimizer: Optimizer) -> float | None:
    """Return the learning rate of the next step; None if it is no number, or a function of the user's gives it.

    That may give another at each call. A schedule is a function of the step.
    """
    given = optimizer._learning_rate
    is_code = callable(given) and not isinstance(given, LearningRateSchedule)
    number = math.nan if is_code else float(np.asarray(optimizer.learning_rate))
    return number if math.isfinite(number) else None


def is_scheduled(optimizer: Optimizer) -> bool:
    """Return whether a schedule sets the learning rate."""
    return isinstance(optimizer._learning_rate, LearningRateSchedule)


def _read(kind: type, *alike: str, **options: str) -> dict[str, Callable[[Any], Any]]:
    """Return how settings are read of an optimizer, each of its attribute; those `alike` have the attribute's name."""
    named = dict(zip(alike, alike, strict=True)) | options
    return {name: lambda optimizer, option=option: kind(getattr(optimizer, option)) for name, option in named.items()}


# The settings of each class, each fixed or read of an optimizer.
BETAS = _read(float, "epsilon", beta1="beta_1", beta2="beta_2")
ADAM = {**BETAS, "kind": "adam", "epsilon_placement": "before the correction", **_read(bool, "amsgrad")}
INSIDE = {"epsilon_placement": "inside the root", **_read(float, "epsilon")}
SETTINGS = {
    SGD: {
        "kind": "sgd",
        **_read(bool, "nesterov"),
        "momentum_form": "rate inside, negative",
        **_read(float, "momentum"),
    },
    Adam: ADAM,
    AdamW: ADAM,
    Nadam: {**BETAS, "kind": "nadam", "momentum_decay": 1.0},
    Adamax: {**BETAS, "kind": "adamax", "epsilon_placement": "beside the maximum"},
    Adagrad: {"kind": "adagrad", **INSIDE, **_read(float, accumulator="initial_accumulator_value")},
    Adadelta: {"kind": "adadelta", **_read(float, "rho", "epsilon")},
    RMSprop: {
        "kind": "rmsprop",
        "momentum_form": "rate inside",
        **_read(bool, "centered"),
        **INSIDE,
        **_read(float, "momentum", "rho"),
    },
}
Gradients = dict[int, Any]  # by id(variable); a tensor, or a list of rows


class StepObserver:
    """What is seen of a step, on one replica: `on_loss` is called with what each backward pass differentiates.

    The gradients are those that the backward pass left; those that an optimizer is given, if the step `is_own`, that is
    the user's code, which may add some up; and those that it applies after clipping, if a step that the pair's file
    names, on either side, may clip by itself; `unclipped` are then the lists of rows that an optimizer is given.
    `applied`: those that an optimizer applies, in any step. `updates`: whether it changed anything, where such a step
    may let gradients wait. What an optimizer applies is that of all replicas, of which the first observer is told;
    `local` returns this replica's part of it.
    """

    def __init__(
        self,
        pair: Pair,
        variables: Sequence[Any],
        is_own: bool,
        on_loss: Callable[[tf.Tensor], None] = lambda _: None,
        local: Callable[[Any], Any] = lambda value: value,
    ) -> None:
        self._local = local
        self.pair, self.is_own, self.on_loss = pair, is_own or pair.train.has_own_step, on_loss
        self.losses: list[tf.Tensor] = []
        self.gradients: Gradients = {}
        # TensorFlow's variable behind one of Keras's is differentiated by just as well.
        both = ((variable, getattr(variable, "value", variable)) for variable in variables)
        self._known = {id(each): id(own) for own, plain in both for each in (own, plain)}
        self._is_applied = self._is_backward = False
        self.updates = not pair.train.has_own_step
        self.applied: Gradients = {}
        self.unclipped: Gradients = {}
        self.rates: dict[Optimizer, float | None] = {}  # of those that have updated something, at that time
        self._scaled: dict[int, tuple[tf.Tensor, tf.Tensor, Any]] = {}  # by id() of a scaled loss, which is kept

    def watched(self, own: Callable[[], "StepObserver"] | None = None) -> AbstractContextManager[Any]:
        """Return a context in which a step is seen; `own` returns the observer of the replica that does it."""
        observer = own or (lambda: self)

        def seen(of: type, method: str, name: str) -> Any:
            return around(of, method, lambda *given, **named: getattr(observer(), name)(*given, **named))

        return applied(
            [
                seen(tf.GradientTape, "gradient", "_gradient"),
                seen(BaseOptimizer, "scale_loss", "_scale"),
                seen(LossScaleOptimizer, "scale_loss", "_scale"),
                seen(BaseOptimizer, "_backend_apply_gradients", "_apply"),
                seen(TFOptimizer, "_distributed_tf_update_step", "_update"),
            ]
        )

    def _gradient(
        self, gradient: Original, tape: tf.GradientTape, target: Any, sources: Any, *args: Any, **kwargs: Any
    ) -> Any:
        """Run a tape's backward pass; note what it differentiates by the model's variables, and the result."""
        variables = tf.nest.flatten(sources)
        if self._is_backward or not any(id(variable) in self._known for variable in variables):
            return gradient(tape, target, sources, *args, **kwargs)  # within a backward pass: keras.remat's own
        parts = tf.nest.flatten(target)
        total = parts[0] if len(parts) == 1 else tf.add_n([tf.reduce_sum(part) for part in parts])
        _, loss, scale = self._scaled.get(id(total), (total, total, None))
        self.losses.append(loss)
        self.on_loss(loss)
        is_backward = mock.patch.object(self, "_is_backward", True)
        with is_backward, build.user_errors(f"keras={self.pair.keras}: backward fails"):
            result = gradient(tape, target, sources, *args, **kwargs)
        self.gradients |= self._by_id(variables, [_divided(each, scale) for each in tf.nest.flatten(result)])
        return result

    def _scale(self, scale: Original, optimizer: Any, loss: tf.Tensor) -> tf.Tensor:
        larger = scale(optimizer, loss)
        if larger is not loss:
            self._scaled[id(larger)] = larger, loss, scale(optimizer, tf.ones_like(loss))
        return larger

    def _apply(self, apply: Original, optimizer: Any, gradients: Sequence[Any], variables: Sequence[Any]) -> None:
        """Let an optimizer use gradients; note, if the step is the user's own, those that it is given.

        Or those that it has accumulated so far.
        """
        if not self.is_own:
            apply(optimizer, gradients, variables)
            return
        if not self._is_applied:  # what the backward pass left counts where no optimizer is called
            self._is_applied = True
            self.gradients.clear()
        given = gradients
        if steps := optimizer.gradient_accumulation_steps:
            sums = [optimizer._accumulated_gradients[optimizer._get_variable_index(each)] for each in variables]
            given = [(new + old) / steps for new, old in zip(gradients, sums, strict=True)]
        self.gradients |= self._by_id(variables, given)
        apply(optimizer, gradients, variables)

    def _update(self, update: Original, optimizer: Any, distribution: Any, pairs: Sequence[Any], *rest: Any) -> None:
        """Let an optimizer update variables; note the gradients that this is given, after all clipping."""
        self.updates = True
        self.rates.setdefault(optimizer, rate(optimizer) if tf.executing_eagerly() else None)
        by_id = self._by_id([variable for _, variable in pairs], [self._local(gradient) for gradient, _ in pairs])
        self.applied |= by_id
        if self.pair.train.has_own_step:
            given = {key: self.gradients.get(key) for key in by_id}
            self.unclipped |= {key: each for key, each in given.items() if isinstance(each, tf.IndexedSlices)}
            self.gradients |= by_id
        update(optimizer, distribution, pairs, *rest)

    def _by_id(self, variables: Sequence[Any], gradients: Sequence[Any]) -> Gradients:
        pairs = zip(variables, gradients, strict=True)
        return {self._known[id(of)]: each for of, each in pairs if id(of) in self._known}


def _divided(gradient: Any, scale: Any) -> Any:
    if scale is None or gradient is None:
        return gradient
    return tf.convert_to_tensor(gradient) / tf.cast(scale, gradient.dtype)
