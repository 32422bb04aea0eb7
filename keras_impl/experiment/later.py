"""What comes after a forward pass of a user's model, computed again: a loss, a gradient, buffers, an optimizer's steps.

The model is brought to the state before the step in question by training it from the beginning. A gradient is computed
by the backward pass of one layer alone, with the arguments and the gradients of its outputs that it had, where that
gives what was recorded; else by that of the whole model. What the forward pass returns must stay the same.
"""

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from keras_impl.experiment.added import added
from keras_impl.record import calls, kinds, tree
from keras_impl.record.pair import build, losses
from keras_impl.record.pair.optimizers import made
from keras_impl.record.pair.outputs import flat, laid_out, ordered
from keras_impl.record.pair.values import Placed
from keras_impl.record.pair.vary import Instance
from keras_impl.record.weights import array
from parity.core.arrays import Array
from parity.core.names import INPUT, MODEL
from parity.data.pairs import PairData
from parity.diagnose.experiment.knobs import AS_GIVEN, DENSE, SLICES, Knob, Owner, assignment, is_setting
from parity.diagnose.experiment.pieces import Evidence, Steps, steps, updated, updated_names
from parity.doctor.program import load
from parity.pairs import transfer
from parity.pairs.vary.record import reproduced
from parity.runtime.job import ExperimentJob
from parity.trace.experiment import Question

Again = Callable[[], list[tuple[str, Array]]]  # computes a tensor again; with its name
Pairs = list[tuple[Any, Any]]  # gradients, with their variables


class Way(NamedTuple):
    """A way to compute a tensor again: `recorded` as it was recorded, `asked` as the other side's is to be met."""

    recorded: Again
    asked: Again


class _Pass(NamedTuple):
    outputs: list[tf.Tensor]
    loss: tf.Tensor


class Later:
    """A built model, of which what comes after the forward pass of a step can be computed again.

    `stack` is closed when the model is no longer needed.
    """

    def __init__(self, job: ExperimentJob, built: Instance, stack: ExitStack) -> None:
        self._case, self._pair, self._search = job.case, job.case.model, job.pair.search
        self._built, self._model, self._weights, self._stack = built, built.model, built.weights, stack
        self._data = PairData(job.case, job.pair.search)
        self._layouts = job.pair.matching.layouts if job.pair.matching else {}
        self._masks = built.masks
        self._kind, self._step, self._has_slices, self._is_dense = "", 0, False, False
        self._state: list[tf.Tensor] = []
        self._first: dict[str, list[Array]] = {}

    def ways(self, question: Question, evidence: Evidence) -> list[Way]:
        """Return the ways to compute a question's tensor again, the fastest first; the last one is always right."""
        kind, name = question.tensor.kind, question.tensor.key.partition("/")[2]
        self._kind = kind
        self._begin(question.tensor.step)
        if kind == "update":
            return self._updates(question, evidence)
        if kind == "loss":
            whole: Again = lambda: [(name, self._loss(evidence))]  # noqa: E731
        elif kind == "buffer":
            whole = lambda: [(name, self._buffer(name))]  # noqa: E731
        else:
            whole = lambda: [(name, self._gradient(name))]  # noqa: E731
        alone = self._alone(question.module, name) if kind == "gradient" else None
        return [Way(each, each) for each in (alone, whole) if each]

    def owners(self) -> list[Owner]:
        """Return the objects that the user's loss function reads from its file, such as a keras.losses.Loss."""
        train = self._pair.train
        if train is None or not train.keras_loss:
            return []
        function: Any = load("train.keras_loss", train.keras_loss, "outputs", "target", search=self._search)
        names = getattr(getattr(function, "__code__", None), "co_names", ())
        found = [function, *(getattr(function, "__globals__", {}).get(name) for name in names)]
        return [
            Owner("", kinds.kind(each), each) for each in found if isinstance(each, (keras.losses.Loss, keras.Layer))
        ]

    def settings(self) -> list[Knob]:
        """Return what else decides the question's tensor: losses that layers add, arguments of loss objects, slices."""
        if self._kind == "update":
            return [self._slices()] if self._has_slices else []
        knobs = list(added(self._model, self._again)) if self._kind == "loss" else []
        for owner in self.owners():
            given, kind = getattr(owner.module, "_fn_kwargs", {}), type(owner.module).__name__
            settings = ((name, value) for name, value in given.items() if is_setting(value))
            knobs += [
                Knob(name, kind, "", value, "attribute", assignment(given, name), (), owner.kind)
                for name, value in settings
            ]
        return knobs

    def _begin(self, step: int) -> None:
        """Bring the model into the state before a step."""
        self._step = step
        if self._pair.train is not None:
            self._stack.enter_context(self._masks.drawn(tree.named(self._model).items()))
            for _ in self._trained_again(step):
                pass
        self._state = [tf.identity(held.variable) for held in self._weights.variables]

    def _restore(self) -> None:
        """Bring the model into the state before the question's step again."""
        for held, value in zip(self._weights.variables, self._state, strict=True):
            held.variable.assign(value)
        self._masks.restart()

    def _trained(self) -> list[Any]:
        return [held.variable for held in self._weights.trained()]

    def _pass(self, step: int) -> _Pass:
        """Run the forward pass of a step, and compute its loss."""
        inputs, training = build.tensors(self._pair, self._data.step(step)), self._pair.train is not None
        with calls.entered(MODEL):
            outputs = build.call(self._model, self._pair, inputs, training)
        canonical = laid_out(self._pair, ordered(outputs, self._built.torch.keys(training)), self._layouts)
        tensors = [output.canonical for output in canonical]
        if not training:
            return _Pass(tensors, losses.probe(tensors, self._data).value)
        scalar = losses.training(self._pair, outputs, canonical, self._data, step, self._search)
        return _Pass(tensors, losses.with_added(scalar, self._model).value)

    def _again(self) -> _Pass:
        """Run the question's step again, in which the outputs must stay the same."""
        self._restore()
        done = self._pass(self._step)
        self._keep("outputs", done.outputs)
        return done

    def _keep(self, what: str, returned: list[tf.Tensor]) -> None:
        """Raise LookupError if these tensors are not what they were at first."""
        arrays = [array(tensor) for tensor in returned]
        first = self._first.setdefault(what, arrays)
        if len(arrays) != len(first) or not all(map(reproduced, arrays, first)):
            raise LookupError(f"a change of the backward pass alone leaves the {what} as they are")

    def _loss(self, evidence: Evidence) -> Array:
        """Return the loss of the step, with the gradients that are evidence of it."""
        assert evidence.pieces
        variables = self._trained()
        with tf.GradientTape() as tape:
            loss = self._again().loss
        values = _by_id(variables, tape.gradient(loss, variables))
        return evidence.pieces.joined({"loss": array(loss), **dict(self._weights.gradients(values))})

    def _gradient(self, name: str) -> Array:
        """Return the gradient of a parameter."""
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
        """Return how a gradient is computed by a layer alone; None if it is not called once, or has no outputs."""
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
        """Return a buffer after the forward pass of the step."""
        self._again()
        state = self._weights.state(lambda kind: kind == "parameter")
        return next(value.numpy() for _, value in state if value.name == name)

    def _updates(self, question: Question, evidence: Evidence) -> list[Way]:
        """Return how the optimizer moves a few parameters or all of them, by its own and the other side's gradients.

        A gradient that is a list of rows is recorded as a dense one. Where that makes a difference, the optimizer is
        given its own gradients in the first step, unless a change makes them dense: there the other side's are equal.
        """
        name, (own, other) = question.tensor.key.partition("/")[2], steps(question)
        rows = [list(pairs) for pairs in self._trained_again(len(own.gradients))]
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

    def _trained_again(self, count: int) -> Iterator[Pairs]:
        """Train the model from its beginning, and yield the gradients of each step with their variables."""
        variables = self._trained()
        optimizer = made(self._case, variables, self._search)
        for number in range(count):
            with tf.GradientTape() as tape:
                loss = self._pass(number).loss
            found = zip(tape.gradient(loss, variables), variables, strict=True)
            pairs = [(gradient, variable) for gradient, variable in found if gradient is not None]
            yield pairs
            optimizer.apply(*map(list, zip(*pairs, strict=True)))
            self._masks.on_step()

    def _moved(self, given: Sequence[Pairs], recorded: Steps, evidence: Evidence, placed: Sequence[Placed]) -> Array:
        """Return how far a new optimizer moves some parameters when it is given these gradients."""
        assert evidence.pieces
        self._restore()
        wanted = {id(held.variable): held.variable for each in placed for held in each.held}
        trained = [variable for variable in self._trained() if id(variable) in wanted]
        optimizer, moved, initial = made(self._case, trained, self._search), {}, self._parameters(placed)
        for step, pairs in enumerate(given):
            optimizer.apply(*map(list, zip(*(pair for pair in pairs if id(pair[1]) in wanted), strict=True)))
            after = self._parameters(placed) if step in recorded.recorded else {}
            moved |= {updated(name, step): after[name] - initial[name] for name in after}
        return evidence.pieces.joined(moved)

    def _slices(self) -> Knob:
        """Return the knob that makes all gradients dense which are lists of rows."""

        @contextmanager
        def changed(how: Any) -> Iterator[None]:
            self._is_dense = how == DENSE
            try:
                yield
            finally:
                self._is_dense = False

        return Knob("gradients", SLICES, "", AS_GIVEN, "argument", changed, (DENSE,), "optimizer")

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
        found: dict[str, Array] = {}
        for entry, held, shapes in placed:
            start = [self._weights.initial[name] for name in entry.torch] if entry.is_partial else None
            arrays = [array(item.variable) for item in held]
            found |= zip(entry.torch, map(np.array, transfer.to_torch(entry, arrays, shapes, start)), strict=True)
        return found


def _by_id(variables: Sequence[Any], gradients: Sequence[Any]) -> dict[int, tf.Tensor]:
    found = zip(variables, gradients, strict=True)
    return {id(variable): tf.convert_to_tensor(gradient) for variable, gradient in found if gradient is not None}


def _canonical(placed: Placed, name: str, gradients: Sequence[Any]) -> Array:
    """Return the gradient of one of torch's weights from those of the variables that hold it."""
    by_held = zip(placed.held, gradients, strict=True)
    arrays = [
        np.zeros(held.description.shape, held.description.dtype)
        if gradient is None
        else array(tf.convert_to_tensor(gradient))
        for held, gradient in by_held
    ]
    return transfer.gradients_to_torch(placed.entry, arrays, placed.shapes)[placed.entry.torch.index(name)]


def _floats(outputs: Any) -> list[tf.Tensor]:
    return [tensor for tensor in flat(outputs) if tensor.dtype.is_floating]
