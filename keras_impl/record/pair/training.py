"""The training of a user's model, step by step, as its user runs it, and what is seen of a step from outside.

A keras.Model is compiled, and a step is its own `train_step`, which `fit` calls for each batch. What `fit` cannot train
(a layer alone, a tf.Module, a model that takes several arguments) is trained by the loop of Keras's guide "Writing a
training loop from scratch". `keras_step` runs a step of the user's own.
"""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any, NamedTuple
from unittest import mock

import keras
import tensorflow as tf
from keras.optimizers import Optimizer
from keras.src.trainers.data_adapters import data_adapter_utils

from keras_impl.instruments import devices
from keras_impl.instruments.script_callbacks import Callbacks
from keras_impl.instruments.script_data import fits, taken_of
from keras_impl.instruments.script_run import ByHand
from keras_impl.record import calls, precision
from keras_impl.record.pair import build, losses
from keras_impl.record.pair.optimizers import Gradients, StepObserver, made
from keras_impl.record.pair.sides import Setup
from parity.config.pair import SAMPLE_WEIGHT, TARGET
from parity.config.schema import Case
from parity.core.errors import UsageError
from parity.core.patches import applied, left_with
from parity.core.program import load
from parity.data.pairs import PairData
from parity.pairs import script_records, structure
from parity.pairs.script_names import counted
from parity.runtime.survey import Survey
from parity.trace.keys import MODEL
from parity.trace.mapping import PairContext

NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class Batch(NamedTuple):
    """The data of a step: inputs by canonical name; the target in Keras's axis order and in the canonical one."""

    inputs: dict[str, tf.Tensor]
    target: tf.Tensor
    canonical: tf.Tensor
    sample_weight: Any  # a tensor, or those of several outputs
    further_targets: dict[str, tf.Tensor]


class Step(NamedTuple):
    """What a step computed: its losses, and the gradients of trained variables."""

    losses: list[tf.Tensor]
    gradients: Gradients
    applied: Gradients = {}  # the gradients as the optimizer has applied them
    returns_loss: bool = True  # whether the loss is one that a step of the user's own returned, or Keras's
    updates: bool = True  # whether an optimizer changed anything
    rates: Mapping[Optimizer, float | None] = {}  # of those that did, the learning rates at that time, if known
    unclipped: Gradients = {}  # the lists of rows that one is given, where the gradients are those that it applies


def _joined(steps: Sequence[Step], accumulate: int, may_clip: bool) -> Step:
    """Return what the parts of a step computed together, of which each replica has run so many.

    Losses and gradients are the means of micro-batches, and of replicas the sums, as their losses are parts of a mean.
    A step that may clip by itself has those gradients that are applied.
    """
    last = steps[-(len(steps) // accumulate)]  # of the first replica, which is told what is applied
    gradients = {
        key: tf.add_n([tf.convert_to_tensor(step.gradients[key]) for step in steps]) / accumulate
        for key in last.gradients
        if all(step.gradients.get(key) is not None for step in steps)
    }
    losses = [tf.add_n(parts) / accumulate for parts in zip(*(step.losses for step in steps), strict=True)]
    return last._replace(losses=losses, gradients=gradients | (last.applied if may_clip else {}))


class Training:
    """The training of a built model by an optimizer of its own.

    `torch`: the survey of the model's counterpart. `on_call` is called before each call of the whole model, and
    `on_return` with what that returns. `setup`: how the model is called, and each batch is cut.
    """

    def __init__(
        self,
        case: Case,
        model: Any,
        data: PairData,
        halves: PairContext,
        torch: Survey,
        on_call: Callable[[], None] = lambda: None,
        on_return: Callable[[Any], None] = lambda _: None,
        setup: Setup | None = None,
    ) -> None:
        self.case, self.pair, self.model, self._data, self.search = case, case.model, model, data, halves.search
        self._torch, self._layouts = torch, halves.layouts
        self._on_call, self._on_return = on_call, on_return
        self._setup = setup or Setup(case)
        self._fit, trained = fits.get(model), script_records.known(self.search)
        self._keeps_data = bool(trained and trained.keeps_data)  # its `fit` has own targets
        self.callbacks = Callbacks(self._fit, model) if self._fit else None
        if self.pair.train.torch_loss and not (self.pair.train.keras_loss or self.is_own):
            raise UsageError("train.torch_loss is given without keras_loss; give both, or a model with a train_step")
        self.optimizer = made(case, model.trainable_variables, self.search, self._setup.accumulate)
        self._loss = losses.made(self.pair, self.search, torch.keys(training=True), self._layouts, data)
        self._steps = self._setup.compile(self._traced)
        if self._fit and self.pair.train.keras_step:
            return
        if self._fit:  # its script has compiled it
            model.optimizer = self.optimizer
        elif isinstance(model, keras.Model):
            self._compile(model)

    def _compile(self, model: keras.Model) -> None:
        """Compile the model; a loss of its first output takes the place of the losses of all outputs."""
        is_of_first = isinstance(self._loss, losses.FirstOutput)
        given = {
            "optimizer": self.optimizer,
            "loss": None if is_of_first else self._loss,
            "auto_scale_loss": False,  # in float16 the reference's loop scales no loss either; the user's own may
        }
        parameters = inspect.signature(model.compile).parameters
        takes_all = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
        further = {name for name, each in parameters.items() if each.default is each.empty and each.kind in NAMED}
        if model.compiled and further - given.keys():
            return  # by its builder, with what only the user knows, such as two optimizers
        was_eager = model.run_eagerly
        with build.user_errors(f"keras={self.pair.keras}: compile fails"):
            model.compile(**{name: value for name, value in given.items() if takes_all or name in parameters})
        if is_of_first:
            model._compile_loss = self._loss
        model.run_eagerly |= was_eager  # as its builder has compiled it
        model._compile_metrics = None  # those that a model has by itself may expect another target than the pair's loss

    @property
    def loss_function(self) -> Any:
        """Return the loss that the user gave, or Keras's."""
        return self._loss.function if isinstance(self._loss, losses.FirstOutput) else self._loss

    @property
    def is_own(self) -> bool:
        """Return whether the user's code runs the steps."""
        return bool(self.pair.train.keras_step) or build.is_overridden(self.model, "train_step")

    def batch(self, number: int, part: PairData | None = None) -> Batch:
        """Return the data of a step, or a part of it."""
        data = part or self._data
        inputs = build.tensors(self.pair, data.step(number))
        # `fit` that is given a target and no weights of the samples is not given PyTorch's either.
        is_unweighted = self._fit and self._fit.y is not None and self._fit.sample_weight is None
        weight = None if is_unweighted else data.sample_weight(number)
        array = losses.target(self.pair, data, number, self._torch)
        further = data.further_targets(number)
        given = {TARGET: counted(array, weight), **further} | ({} if weight is None else {SAMPLE_WEIGHT: weight})
        if self._keeps_data and self._fit:
            given = self._fit.targets | self._fit.weights
        if self._fit and self._fit.y is not None and not self._fit.is_whole(taken_of(further)):
            target = self._fit.target(given, inputs)
        else:
            target = build.tensor(array, losses.layout(self.pair, self._torch, self._layouts, array.ndim))
        by_class = self._fit.class_weight if self._fit else dict(enumerate(self.pair.train.class_weight))
        if by_class:
            of_classes = data_adapter_utils.class_weight_to_sample_weights(target, by_class)
            weight = of_classes if weight is None else weight * of_classes
        elif self._fit and not given.keys().isdisjoint(self._fit.weights):
            weight = self._fit.weight(given, len(next(iter(inputs.values()))))
        weight = None if weight is None else keras.tree.map_structure(build.tensor, weight)
        return Batch(inputs, target, build.tensor(array), weight, build.tensors(self.pair, further))

    def step(self, number: int, record: Callable[[Step], None] = lambda _: None) -> None:
        """Run a training step, and let what it computed be recorded."""
        if self._setup.side.is_compiled:
            step, outputs = self._steps(self.batch(number))
            for each in outputs:
                self._on_call()
                self._on_return(each)
            record(Step(*step, *self._said))
            return
        if self.pair.train.keras_step and not self._setup.is_plain:
            self._setup.batch = [tensor.numpy() for tensor in self.batch(number).inputs.values()]
        batches = [self.batch(number, data) for data in self._setup.parts(self._data)]
        per_replica = self._setup.side.accumulate
        steps = [step for part in range(per_replica) for step in self._steps_of(part, batches[part::per_replica])]
        record(steps[0] if len(steps) == 1 else _joined(steps, per_replica, self.pair.train.has_own_step))

    def _traced(self, batch: Batch) -> tuple[tuple[list[tf.Tensor], Gradients, Gradients], list[Any]]:
        """Run a step while it is traced; return its tensors, and what the model returned in each of its calls."""
        returned: list[Any] = []
        with mock.patch.multiple(self, _on_call=lambda: None, _on_return=returned.append):
            step = self._steps_of(0, [batch])[0]
        self._said = step.returns_loss, step.updates  # no tensors: they are the same in each execution
        return (step.losses, step.gradients, step.applied), returned

    def _steps_of(self, part: int, batches: Sequence[Batch]) -> list[Step]:
        """Run the step of a part on each replica, given each one's batch."""
        setup, returned = self._setup, [None] * len(batches)
        seen = [StepObserver(self.pair, self.model.variables, self.is_own, local=setup.local) for _ in batches]

        def run(batch: Batch) -> None:
            setup.begin_part(devices.replica() * setup.side.accumulate + part)
            returned[devices.replica()] = self.run_as_is(batch)

        with seen[0].watched(lambda: seen[devices.replica()]), self._running():
            setup.on_replicas(run, batches)
        return [self._seen(*each) for each in zip(seen, returned, strict=True)]

    def _seen(self, seen: StepObserver, returned: Any) -> Step:
        if not seen.is_own:
            return Step(seen.losses, seen.gradients, seen.applied, rates=seen.rates)
        own = losses.number(returned) if self.pair.train.keras_step else None
        returns_loss = own is not None or not self.is_own
        loss = seen.losses if own is None else [own]
        updates = seen.updates or isinstance(self.optimizer, ByHand)
        return Step(loss, seen.gradients, seen.applied, returns_loss, updates, seen.rates, seen.unclipped)

    def loss(self, batch: Batch, number: int = 0) -> tf.Tensor:
        """Run a step up to its first backward pass, or a further one, and return what that would differentiate."""

        def run(leave: Callable[[tf.Tensor], None]) -> None:
            known = self.pair, self.model.variables, self.is_own
            seen = StepObserver(*known, lambda loss: leave(loss) if len(seen.losses) > number else None)
            with seen.watched():
                self.run(batch)

        return left_with(run, "the step has no backward pass")

    def run(self, batch: Batch) -> Any:
        """Run a training step, op by op unless it is compiled, and return what the step does."""
        with self._running():
            return self.run_as_is(batch)

    def _running(self) -> AbstractContextManager[None]:
        return applied([precision.eagerly(not self._setup.side.is_compiled), self._observed()])

    def run_as_is(self, batch: Batch) -> Any:
        """Run a training step as it is, and return what the step does."""
        with build.user_errors(f"keras={self.pair.keras}: the training step fails"):
            if text := self.pair.train.keras_step:
                step = load("train.keras_step", text, "model", "optimizer", "batch", search=self.search)
                weight = {} if batch.sample_weight is None else {SAMPLE_WEIGHT: batch.sample_weight}
                parts = {self.pair.inputs[name].keras or name: tensor for name, tensor in batch.inputs.items()}
                given = {**structure.wholes(parts, tf.stack), TARGET: batch.target, **batch.further_targets, **weight}
                return step(self.model, self.optimizer, given)
            if build.fitted(self.model, self.pair, batch.inputs) is None:
                return self._looped(batch)
            train = functools.partial(self.model.train_step, self.data_of(batch))
            return self.callbacks.around(train) if self.callbacks else train()

    def data_of(self, batch: Batch) -> Any:
        """Return a batch as `fit` passes it on."""
        fit, taken = self._fit, taken_of(batch.further_targets)
        x = fit.structured(taken) if fit and taken else build.fitted(self.model, self.pair, batch.inputs)
        target = None if fit and fit.y is None else batch.target
        packed = data_adapter_utils.pack_x_y_sample_weight(x, target, batch.sample_weight)
        return x if fit and fit.is_whole(taken) else packed

    def finish(self, is_whole: bool = False) -> None:
        """End the training as `fit` does, by an average of the weights.

        That of a script goes on behind the recorded steps; with `is_whole` these are all.
        """
        if self.model.trainable_variables and not self.pair.train.keras_step and (is_whole or not self._fit):
            self.optimizer.finalize_variable_values(self.model.trainable_variables)

    def _observed(self) -> ExitStack:
        """Report the calls of the whole model; those of a tf.Module are reported by the loop."""
        root = {"": self.model} if isinstance(self.model, keras.Layer) else {}

        def on_call(call: calls.Call) -> None:
            self._setup.begin_call(call.tensors)
            self._on_call()

        return calls.observed(root, on_call, lambda _, outputs: self._on_return(outputs))

    def _looped(self, batch: Batch) -> None:
        """Run a step of the guide's loop."""
        model, optimizer = self.model, self.optimizer
        with tf.GradientTape() as tape:
            outputs = self._called(batch)
            if isinstance(model, keras.Model):
                loss = model._compute_loss(batch.inputs, batch.target, outputs, batch.sample_weight)
            else:
                loss = self._loss(batch.target, outputs, batch.sample_weight)
                loss = tf.add_n([loss, *(tf.cast(added, loss.dtype) for added in getattr(model, "losses", []))])
            scaled = optimizer.scale_loss(loss)
        if variables := model.trainable_variables:
            optimizer.apply(tape.gradient(scaled, variables), variables)

    def _called(self, batch: Batch) -> Any:
        if isinstance(self.model, keras.Layer):
            return build.call(self.model, self.pair, batch.inputs, training=True)
        self._on_call()
        with calls.entered(MODEL):
            outputs = build.call(self.model, self.pair, batch.inputs, training=True)
        self._on_return(outputs)
        return outputs
