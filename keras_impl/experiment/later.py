"""What comes after a forward pass of a user's model, computed again: a loss, a gradient, or a buffer.

The losses that layers add (`add_loss`, line by line, and regularizers, kind by kind) are knobs.
"""

import operator
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any
from unittest import mock

import keras
import tensorflow as tf

from keras_impl.experiment.training import Training
from keras_impl.record import calls, tree
from keras_impl.record.pair.outputs import flat
from keras_impl.record.pair.values import Placed, Weights
from keras_impl.record.weights import array
from parity.core.arrays import Array
from parity.core.patches import applied, around
from parity.diagnose.experiment.knobs import AS_GIVEN, LEFT_OUT, Knob, Owner, arguments, attribute
from parity.diagnose.experiment.pieces import Again, Evidence
from parity.diagnose.experiment.training import read_by
from parity.trace.keys import INPUT


class Later(Training):
    """A built model, of which what comes after the forward pass of a step can be computed again."""

    def owners(self) -> list[Owner]:
        """Return the losses of `compile`, and what the user's loss function reads from its file."""
        read = read_by(self._training.loss_function if self._training else None)
        read += [each.loss for each in self._compiled()]
        return [Owner("", tree.kind(each), each) for each in read if isinstance(each, (keras.losses.Loss, keras.Layer))]

    def settings(self) -> list[Knob]:
        """Return what else decides the question's tensor: losses that layers add, arguments of loss objects, slices."""
        if self._kind == "update":
            return [self._slices()] if self._has_slices else []
        knobs = list(_added(self._model, self._again)) if self._kind == "loss" else []
        compiled = self._compiled()
        knobs += [_weight(compiled, number) for number, each in enumerate(compiled) if each.loss_weights]
        given = (arguments(getattr(owner.module, "_fn_kwargs", {}), owner) for owner in self.owners())
        return knobs + [knob._replace(kind="attribute") for of_loss in given for knob in of_loss]

    def _compiled(self) -> list[Any]:
        """Return the losses that `compile` was given, each with its weight, as Keras keeps them."""
        return getattr(getattr(self._model, "_compile_loss", None), "_flat_losses", None) or []

    def _loss(self, evidence: Evidence) -> Array:
        variables = self._trained()
        with tf.GradientTape() as tape:
            loss = self._again().loss
        values = _by_id(variables, tape.gradient(loss, variables))
        return evidence.pieces.joined({"loss": array(loss), **dict(self._weights.gradients(values))})

    def _gradient(self, name: str) -> Array:
        placed = self._placed(name)
        variables = [held.variable for held in placed.held]
        with tf.GradientTape() as tape:
            done = self._again()
        self._keep("loss", [done.loss])
        return _canonical(placed, name, tape.gradient(done.loss, variables))

    def _placed(self, name: str) -> Placed:
        """Return the variables that hold one of torch's weights. Raises LookupError if there are none."""
        found = [placed for placed in self._weights.placed if name in placed.entry.torch]
        if not found:
            raise LookupError(f"{name} is no weight")
        return found[0]

    def _alone(self, path: str, name: str) -> Again | None:
        observed, given, returned = tree.inner(self._model), [], []
        if path not in observed or name.startswith(INPUT):
            return None
        placed = self._placed(name)
        with (
            calls.observed(
                {path: observed[path]}, given.append, lambda call, outputs: returned.append(_floats(outputs))
            ),
            tf.GradientTape() as tape,
        ):
            loss = self._again().loss
        if len(returned) != 1 or not returned[0]:
            return None
        upstream = tape.gradient(loss, returned[0])
        layer, variables = given[0].module, [held.variable for held in placed.held]

        def again() -> list[tuple[str, Array]]:
            self._restore()
            with tf.GradientTape() as tape:
                outputs = _floats(layer.call(*given[0].args, **given[0].kwargs))
            self._keep("layer's outputs", outputs)
            both = [(one, of) for one, of in zip(outputs, upstream, strict=True) if of is not None]
            if not both:
                return [(name, _canonical(placed, name, [None] * len(variables)))]
            found = tape.gradient([one for one, _ in both], variables, output_gradients=[of for _, of in both])
            return [(name, _canonical(placed, name, found))]

        return again

    def _buffer(self, name: str) -> Array:
        self._again()
        state = self._weights.state(lambda kind: kind == "parameter")
        return next(value.numpy() for _, value in state if value.name == name)


def _by_id(variables: Sequence[Any], gradients: Sequence[Any]) -> dict[int, tf.Tensor]:
    found = zip(variables, gradients, strict=True)
    return {id(variable): tf.convert_to_tensor(gradient) for variable, gradient in found if gradient is not None}


def _canonical(placed: Placed, name: str, gradients: Sequence[Any]) -> Array:
    """Return the gradient of one of torch's weights from those of the variables that hold it."""
    by_id = _by_id([held.variable for held in placed.held], gradients)
    return dict(Weights.gradients_of(placed, by_id))[name]


def _floats(outputs: Any) -> list[tf.Tensor]:
    return [tensor for tensor in flat(outputs) if tensor.dtype.is_floating]


ADDED = "add_loss"  # the name of the knobs


def _weight(losses: list[Any], number: int) -> Knob:
    """Return the weight of a loss of `compile` as a setting."""

    def replaced(loss: Any, weight: Any) -> Any:
        return loss._replace(loss_weights=weight)

    changed = attribute(losses, number, replaced, operator.getitem, operator.setitem)
    return Knob("loss_weights", "compile", "", losses[number].loss_weights, "attribute", changed, (), "compile")


def _added(model: Any, call: Callable[[], Any]) -> Iterator[Knob]:
    """Yield a knob for each line at which layers add a loss in `call`, and for each kind of regularizer."""
    lines: dict[str, str] = {}

    def note(layer: Any, line: str) -> bool:
        lines.setdefault(line, type(layer).__name__)
        return True

    with _adding(note):
        call()
    for line, owner in lines.items():
        yield _knob(owner, line, partial(_adding, lambda _, caller, line=line: caller != line))
    regularizers = {repr(each.get_config()): each for _, each in _regularized(model)}
    for kind, each in regularizers.items():
        yield _knob(type(each).__name__, "", partial(_without_regularizers, model, kind))
        for name in each.get_config():
            if isinstance(value := getattr(each, name, None), float):
                change = partial(_regularizing, model, kind, name)
                yield Knob(name, type(each).__name__, "", value, "attribute", change, (), "regularizer")
    if len(lines) + len(regularizers) > 1:
        yield _knob("all layers", "", lambda: applied([_adding(lambda *_: False), _without_regularizers(model)]))


def _knob(owner: str, source: str, without: Callable[[], AbstractContextManager[Any]]) -> Knob:
    def changed(how: Any) -> AbstractContextManager[None]:
        return without() if how == LEFT_OUT else nullcontext()

    return Knob(ADDED, owner, source, AS_GIVEN, "argument", changed, (LEFT_OUT,), "loss")


def _adding(wanted: Callable[[Any, str], bool]) -> AbstractContextManager[None]:
    """Let layers add a loss only where `wanted(layer, line)` says so; the line is that of the code that adds it."""

    def add(add_loss: Callable[..., None], layer: Any, loss: Any) -> None:
        caller = sys._getframe(2)
        if wanted(layer, f"{caller.f_code.co_filename}:{caller.f_lineno}"):
            add_loss(layer, loss)

    return around(keras.Layer, "add_loss", add)


def _regularizing(model: Any, kind: str, name: str, value: float) -> AbstractContextManager[None]:
    """Return a context in which an attribute of the regularizers of a kind has another value."""
    own = {id(each): each for _, each in _regularized(model) if kind == repr(each.get_config())}
    return applied(mock.patch.object(each, name, value) for each in own.values())


def _without_regularizers(model: Any, kind: str = "") -> AbstractContextManager[None]:
    """Return a context in which the weights have no regularizers, or none of a kind."""
    regularized = [each for each, own in _regularized(model) if kind in ("", repr(own.get_config()))]
    # A property of a variable, which mock.patch would delete.
    return applied(attribute(variable, "regularizer")(None) for variable in regularized)


def _regularized(model: Any) -> list[tuple[Any, Any]]:
    """Return the weights of the model that have a regularizer, with it."""
    layers = [layer for layer in tree.named(model).values() if isinstance(layer, keras.Layer)]
    weights = {id(variable): variable for layer in layers for variable in layer.trainable_weights}
    return [(each, each.regularizer) for each in weights.values() if getattr(each, "regularizer", None) is not None]
