"""Knobs for the losses that layers add: `add_loss`, line by line, and regularizers of weights, kind by kind."""

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any
from unittest import mock

import keras

from keras_impl.record import tree
from parity.diagnose.experiment.knobs import AS_GIVEN, LEFT_OUT, Changed, Knob

ADDED = "add_loss"  # the name of the knobs


def added(model: Any, call: Callable[[], Any]) -> Iterator[Knob]:
    """Yield a knob for each line at which layers add a loss in `call`, and for each kind of regularizer."""
    lines: dict[str, str] = {}

    def note(layer: Any, line: str) -> bool:
        lines.setdefault(line, type(layer).__name__)
        return True

    with _adding(note):
        call()
    for line, owner in lines.items():
        yield _knob(owner, line, _without_line(line))
    regularizers = {repr(each.get_config()): each for _, each in _regularized(model)}
    for kind, each in regularizers.items():
        yield _knob(type(each).__name__, "", _without_regularizer(model, kind))
    if len(lines) + len(regularizers) > 1:
        yield _knob("all layers", "", _without_any(model))


def _knob(owner: str, source: str, without: Callable[[], AbstractContextManager[Any]]) -> Knob:
    def changed(how: Any) -> AbstractContextManager[None]:
        return without() if how == LEFT_OUT else nullcontext()

    change: Changed = changed
    return Knob(ADDED, owner, source, AS_GIVEN, "argument", change, (LEFT_OUT,), "loss")


@contextmanager
def _adding(wanted: Callable[[Any, str], bool]) -> Iterator[None]:
    """Let layers add a loss only where `wanted(layer, line)` says so; the line is that of the code that adds it."""
    add_loss = keras.Layer.add_loss

    def add(layer: Any, loss: Any) -> None:
        caller = sys._getframe(1)
        if wanted(layer, f"{caller.f_code.co_filename}:{caller.f_lineno}"):
            add_loss(layer, loss)

    with mock.patch.object(keras.Layer, "add_loss", add):
        yield


def _without_line(line: str) -> Callable[[], AbstractContextManager[None]]:
    return lambda: _adding(lambda _, caller: caller != line)


def _without_regularizer(model: Any, kind: str) -> Callable[[], AbstractContextManager[Any]]:
    def without() -> ExitStack:
        stack = ExitStack()
        for variable, regularizer in _regularized(model):
            if repr(regularizer.get_config()) == kind:
                stack.callback(setattr, variable, "regularizer", regularizer)
                variable.regularizer = None
        return stack

    return without


def _without_any(model: Any) -> Callable[[], AbstractContextManager[Any]]:
    def without() -> ExitStack:
        stack = ExitStack()
        stack.enter_context(_adding(lambda *_: False))
        for kind in {repr(each.get_config()) for _, each in _regularized(model)}:
            stack.enter_context(_without_regularizer(model, kind)())
        return stack

    return without


def _regularized(model: Any) -> list[tuple[Any, Any]]:
    """Return the weights of the model that have a regularizer, with it."""
    layers = [layer for layer in tree.named(model).values() if isinstance(layer, keras.Layer)]
    weights = {id(variable): variable for layer in layers for variable in layer.trainable_weights}
    return [(each, each.regularizer) for each in weights.values() if getattr(each, "regularizer", None) is not None]
