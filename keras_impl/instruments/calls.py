"""Where in the program a step currently is: which layers are being called, and in which phase."""

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest import mock
from weakref import WeakKeyDictionary

import keras
import tensorflow as tf
from tensorflow.python import pywrap_tfe  # whether a tape records has no public API

from keras_impl.instruments import names, source
from keras_impl.instruments.build import Building
from keras_impl.instruments.origins import Known, Origins, tensors
from keras_impl.record import calls
from parity.core.patches import Original, applied, around
from parity.doctor import rewrite
from parity.doctor.evidence import Call, Cut, Made, Phase, Place, Step


class _Thread(threading.local):
    """State by thread, since each replica of tf.distribute runs in a thread of its own."""

    def __init__(self) -> None:
        self.phase: Phase = "other"
        self.stopped = False  # within tape.stop_recording


class Calls:
    """Records every call of a layer of the model; `place` returns the current place."""

    def __init__(self, model: Any, building: Building, origins: Origins):
        self.model, self.building, self.origins = model, building, origins
        self.half = ""  # the first layer that computed in float16
        self.failing: tuple[BaseException, Place] | None = None  # an exception, and where it was raised
        self.outside: tuple[Cut, rewrite.Expression | None] | None = None  # the last call that no tape recorded
        self._paths: dict[int, tuple[keras.Layer, str]] = {}
        self._here = _Thread()
        self._made: WeakKeyDictionary[keras.Layer, Place] = WeakKeyDictionary()  # in the call of another, in this step

    @property
    def phase(self) -> Phase:
        """Return the phase that the step is in."""
        return self._here.phase

    @property
    def module(self) -> str:
        """Return the path of the innermost layer that is being called."""
        return calls.innermost() or ""

    @contextmanager
    def watched(
        self, step: Step, given: Callable[[str, Any], None], returned: Callable[[list[Any]], None]
    ) -> Iterator[None]:
        """Record calls in the block; `given` gets each layer's path and arguments, `returned` its output tensors."""
        self._here, self.failing, self._made = _Thread(), None, WeakKeyDictionary()
        self._learn()

        def called(call: Original, layer: keras.Layer, /, *args: Any, **kwargs: Any) -> Any:
            given_leaves = tf.nest.flatten((args, kwargs))  # symbolic where Keras only infers shapes or builds a graph
            is_symbolic = keras.KerasTensor in map(type, given_leaves) or not tf.executing_eagerly()
            path = "" if is_symbolic else self._path(layer)
            if not path:
                return self._called_unnamed(step, layer, functools.partial(call, layer, *args, **kwargs))
            given(path, (args, kwargs))
            record = Call(module=path, source=source.line(), inputs=self._described((args, kwargs)))
            step.calls.append(record)
            with self._inside(path, layer):
                outputs = call(layer, *args, **kwargs)
                self.origins.note_output(path, outputs)
                record.outputs = self._described(outputs)
                returned(tensors(outputs))
            self._note_layer(layer, step)
            return outputs

        with (
            around(keras.Layer, "__call__", called),
            around(keras.Layer, "__new__", self._create),
            around(keras.Layer, "_resolve_and_populate_arg", self._resolve),
            around(tf.GradientTape, "stop_recording", self._stop),
        ):
            yield

    def _create(self, new: Original, kind: type, *args: Any, **kwargs: Any) -> keras.Layer:
        layer = new(kind, *args, **kwargs)
        if calls.running() and source.direct():
            self._made[layer] = Place(module=self.module, source=source.line())
        return layer

    def _resolve(self, resolve: Original, layer: keras.Layer, name: str, spec: Any, context: Any, kwargs: Any) -> None:
        resolve(layer, name, spec, context, kwargs)
        if name == "training" and calls.running() and calls.running()[-1].module is layer:
            self.building.trainings.setdefault(layer, bool(context.get_value(name)))

    def _stop(self, stop_recording: Original, tape: tf.GradientTape) -> AbstractContextManager[None]:
        return applied([mock.patch.object(self._here, "stopped", True), stop_recording(tape)])

    def _called_unnamed(self, step: Step, layer: keras.Layer, call: Callable[[], Any]) -> Any:
        """Call a layer that is no part of the model, and note it if another one has made it in its own call."""
        before = len(step.made)
        outputs = call()
        if layer in self._made and (weights := layer.trainable_variables):
            record = Made(kind=type(layer).__name__, parameters=len(weights), place=self._made.pop(layer))
            step.made[before:] = [record]  # in place of its own layers
        return outputs

    def place(self, view: source.View) -> Place:
        """Return the current place, with this line of the user's."""
        return Place(module=self.module, source=view.line, phase="loss" if view.loss else self.phase)

    @contextmanager
    def within(self, phase: Phase, afterwards: Phase) -> Iterator[None]:
        """Set the phase within the block, and set it to `afterwards` at its end."""
        self._here.phase = phase
        try:
            with self._failures():
                yield
        finally:
            self._here.phase = afterwards

    def variable(self, handle: tf.Tensor) -> Known:
        """Return what is known of a variable; the layer that reads it may have created it only now."""
        if not self.origins.of(handle).origin and calls.running():
            self.origins.note_variables(names.variables_of(*calls.running()[-1]))
        return self.origins.of(handle)

    @contextmanager
    def _inside(self, path: str, layer: keras.Layer) -> Iterator[None]:
        thread, outer_phase = self._here, self._here.phase
        is_forward = outer_phase in ("other", "loss")
        thread.phase = "forward" if is_forward else outer_phase
        try:
            with calls.entered(path, layer), self._failures():
                yield
        finally:
            thread.phase = "loss" if is_forward and not calls.running() else outer_phase

    @contextmanager
    def _failures(self) -> Iterator[None]:
        """Record an exception that passes through the block."""
        # The first place it passes through is where it was raised; later ones are ignored.
        try:
            yield
        except Exception as error:
            if self.failing is None or self.failing[0] is not error:
                self.failing = error, Place(module=self.module, phase=self.phase)
            raise

    def _note_layer(self, layer: keras.Layer, step: Step) -> None:
        """Note after a call whether it computed in float16, and whether a tape recorded what it trains."""
        if layer.compute_dtype == "float16":
            self.half = self.half or self._path(layer)
        if calls.running() or self.phase != "loss" or not pywrap_tfe.TFE_Py_TapeSetIsEmpty():
            return
        if layer.trainable_variables:
            what = "stop_recording" if self._here.stopped else "no_tape"
            trained = self.origins.describe(layer.trainable_variables[0])
            place = Place(module=self._path(layer), source=source.line())
            step.cuts.append(Cut(what=what, tensor=trained, place=place))
            self.outside = step.cuts[-1], rewrite.statement(source.spot())

    def _described(self, value: Any) -> list[Any]:
        return [self.origins.describe(tensor) for tensor in tensors(value)]

    def _path(self, layer: keras.Layer) -> str:
        """Return the layer's path, or "" for a layer that is not the model's."""
        if id(layer) not in self._paths:
            self._learn()
            self._paths.setdefault(id(layer), (layer, ""))
        return self._paths[id(layer)][1]

    def _learn(self) -> None:
        self._paths |= {id(layer): (layer, path) for path, layer in names.named(self.model)}
        self.origins.note_variables(names.variables(self.model))
