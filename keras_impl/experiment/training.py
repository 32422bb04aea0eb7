"""A user's model in training: brought to a step, whose forward pass can be repeated, and its optimizer's steps."""

import functools
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import tensorflow as tf
from keras.src.optimizers.base_optimizer import BaseOptimizer

from keras_impl.record import calls
from keras_impl.record.pair import build, losses, training
from keras_impl.record.pair.optimizers import made
from keras_impl.record.pair.outputs import laid_out, ordered
from keras_impl.record.pair.values import Placed
from keras_impl.record.pair.vary import Instance
from keras_impl.record.weights import array
from parity.core.arrays import Array
from parity.core.patches import Original, around
from parity.diagnose.experiment import training as shared
from parity.diagnose.experiment.knobs import AS_GIVEN, DENSE, SLICES, Knob
from parity.diagnose.experiment.pieces import Evidence, Steps, Way, steps, updated, updated_names
from parity.pairs.weights import transfer
from parity.runtime.experiment import Question
from parity.runtime.job import ExperimentJob
from parity.trace.keys import MODEL

Pairs = list[tuple[Any, Any]]  # gradients, with their variables


class Pass(NamedTuple):
    """What a forward pass returns, and the loss of it."""

    outputs: list[tf.Tensor]
    loss: tf.Tensor


class Training(shared.Training):
    """A built model, which can be brought to the state before a step of its training."""

    array = staticmethod(array)

    def __init__(self, job: ExperimentJob, built: Instance, stack: ExitStack) -> None:
        super().__init__(job, built, built.masks, stack)
        self._weights, self._has_slices, self._is_dense = built.weights, False, False

        def apply(original: Original, optimizer: Any, *given: Any) -> None:
            self._keep_slots(optimizer)
            original(optimizer, *given)

        stack.enter_context(around(BaseOptimizer, "_backend_apply_gradients", apply))

    def _begin(self, step: int) -> None:
        if self._pair.train is not None:
            if not self._training:
                self._stack.enter_context(self._masks.drawn(self._model))
            self._trained_again(step)
            self._training = self._new_training()

    def _weights_now(self) -> list[tf.Tensor]:
        return [tf.identity(held.variable) for held in self._weights.variables]

    def _load(self, weights: list[tf.Tensor]) -> None:
        for held, value in zip(self._weights.variables, weights, strict=True):
            held.variable.assign(value)

    def _slots_now(self, optimizer: BaseOptimizer) -> list[tf.Tensor]:
        return [tf.identity(variable) for variable in optimizer.variables]

    def _load_slots(self, optimizer: BaseOptimizer, slots: list[tf.Tensor]) -> None:
        for variable, value in zip(optimizer.variables, slots, strict=True):
            variable.assign(value)

    def _trained(self) -> list[Any]:
        return [held.variable for held in self._weights.trained()]

    def _pass(self, step: int) -> Pass:
        if self._training:
            self._returned.clear()
            loss = self._training.loss(self._training.batch(step), self._number)
            return Pass([each for outputs in self._returned for each in self._canonical(outputs)], loss)
        with calls.entered(MODEL):
            outputs = build.call(self._model, self._pair, build.tensors(self._pair, self._data.step(step)))
        tensors = self._canonical(outputs)
        return Pass(tensors, losses.probe(tensors, self._data))

    def _canonical(self, outputs: Any) -> list[tf.Tensor]:
        in_order = ordered(outputs, self._weights.torch.keys(self._pair.train is not None))
        return [output.canonical for output in laid_out(self._pair, in_order, self._halves.layouts)]

    def _new_training(self) -> training.Training:
        known = self._halves, self._weights.torch
        return training.Training(self._case, self._model, self._data, *known, on_return=self._returned.append)

    def _updates(self, question: Question, evidence: Evidence) -> list[Way]:
        """Return the ways to compute an update again.

        A gradient that is a list of rows is recorded as a dense one. Where that makes a difference, the optimizer is
        given its own gradients in the first step, unless a change makes them dense: there the other side's are equal.
        """
        name, (own, other) = question.tensor.key.partition("/")[2], steps(question)
        rows = self._trained_again(len(own.gradients))
        mine, theirs = ([list(self._own(gradients)) for gradients in side.gradients] for side in (own, other))

        def way(names: list[str], has_slices: bool) -> Way:
            placed = [each for each in self._weights.placed if set(each.entry.torch) & set(names)]
            moved = functools.partial(self._moved, recorded=own, evidence=evidence, placed=placed)

            def recorded() -> list[tuple[str, Array]]:
                self._has_slices, self._is_dense = has_slices, not has_slices
                return [(name, moved(rows if has_slices else mine))]

            return Way(recorded, lambda: [(name, moved(theirs if self._is_dense else [rows[0], *theirs[1:]]))])

        few, every = updated_names(evidence), list(own.gradients[0])
        has_slices = any(isinstance(gradient, tf.IndexedSlices) for gradient, _ in rows[0])
        return [way(names, form) for form in ((False, True) if has_slices else (False,)) for names in (few, every)]

    def _trained_again(self, count: int) -> list[Pairs]:
        """Train the model from its beginning, and return the gradients of each step with their variables."""
        again, by_id, steps = self._new_training(), {id(each): each for each in self._trained()}, []

        def note(step: training.Step) -> None:
            steps.append([(each, by_id[key]) for key, each in step.gradients.items() if each is not None])

        for number in range(count):
            again.step(number, note)
            self._masks.on_step()
        return steps

    def _moved(self, given: Sequence[Pairs], recorded: Steps, evidence: Evidence, placed: Sequence[Placed]) -> Array:
        """Return how far a new optimizer moves some parameters when it is given these gradients."""
        self._restore()
        wanted = {id(held.variable): held.variable for each in placed for held in each.held}
        trained = [variable for variable in self._trained() if id(variable) in wanted]
        optimizer, moved, initial = made(self._case, trained, self._halves.search), {}, self._parameters(placed)
        for step, pairs in enumerate(given):
            optimizer.apply(*map(list, zip(*(pair for pair in pairs if id(pair[1]) in wanted), strict=True)))
            after = self._parameters(placed) if step in recorded.recorded else {}
            moved |= {updated(name, step): after[name] - initial[name] for name in after}
        return evidence.pieces.joined(moved)

    def _slices(self) -> Knob:
        """Return the knob that makes all gradients dense which are lists of rows."""
        return Knob("gradients", SLICES, "", AS_GIVEN, "argument", self._with_rows, (DENSE,), "optimizer")

    def _with_rows(self, how: Any) -> AbstractContextManager[Any]:
        return mock.patch.object(self, "_is_dense", how == DENSE)

    def _own(self, gradients: dict[str, Array]) -> Iterable[tuple[tf.Tensor, Any]]:
        """Yield the gradients of Keras's variables, with the variables, from those of torch's weights."""
        for entry, held, shapes in self._weights.placed:
            if entry.torch[0] not in gradients:
                continue
            found = [gradients.get(name, np.zeros(shape)) for name, shape in zip(entry.torch, shapes, strict=True)]
            if entry.combine == "sum":
                found[1:] = [np.zeros_like(each) for each in found[1:]]
            of_held = transfer.to_keras(entry, found, [item.description.shape for item in held])
            for item, values in zip(held, of_held, strict=True):
                if item.description.trainable:
                    yield tf.constant(values, item.description.dtype), item.variable

    def _parameters(self, placed: Sequence[Placed]) -> dict[str, Array]:
        """Return the values of some parameters, by torch's names."""
        return {name: np.array(value) for name, value in self._weights.values(placed)}
