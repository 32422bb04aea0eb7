"""One run of a user's model: a pass forward and back, or some steps of training; recorded eagerly, or as a program."""

import functools
import itertools
from collections.abc import Callable, Iterator, Set
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from einops import rearrange
from keras.optimizers import Optimizer
from msgspec.structs import replace

from keras_impl.instruments import devices
from keras_impl.record import calls, precision
from keras_impl.record.canonical import Replica
from keras_impl.record.pair import build, fitted, losses
from keras_impl.record.pair.first_call import ready
from keras_impl.record.pair.held import dense_gradients, epsilons
from keras_impl.record.pair.layers import Counterparts
from keras_impl.record.pair.optimizers import Joint, is_scheduled, rate, unwrapped
from keras_impl.record.pair.outputs import laid_out, ordered
from keras_impl.record.pair.sides import Setup
from keras_impl.record.pair.training import Batch, Gradients, Step, Training
from keras_impl.record.pair.values import Weights
from keras_impl.record.probe import Probe
from keras_impl.record.recorders import LayoutRecorder
from parity.config.pair import SPARSE, WITHIN
from parity.config.schema import Case
from parity.core.precision import HIGH
from parity.data.pairs import PairData
from parity.pairs import script_records
from parity.pairs.weights.patterns import reverse
from parity.runtime import survey
from parity.runtime.drive import Account, Program, Run
from parity.trace import manifest
from parity.trace.keys import APPLIED, CLIPPED, MODEL, SQUARES
from parity.trace.layout import Layout
from parity.trace.mapping import PairContext
from parity.trace.parts import Parts

Inputs = dict[str, tf.Tensor]


def run(run: Run) -> Account:
    """Build the user's model anew, load the run's weights into it, and record what it does."""
    halves, trained = run.pair, script_records.known(run.pair.search)
    setup = Setup(run.case, halves.side, trained.keras_joined if trained else 1)
    run = run._replace(case=setup.side.trained(run.case), recorders={0: setup.recorder(run.recorders[0])})
    keras.utils.clear_session()
    with precision.policy(run.at), precision.promoted(run.at) as promotions, setup.scope():
        model = ready(run.case, run.at, halves.search, run.dataset.step(0))
        weights = Weights.loaded(model, halves, run.weights)
        replica = Replica(run.recorders[0], model, None, weights)
        probe = Probe({0: replica}, run.case, LayoutRecorder(1), Counterparts(run, model, weights.torch))
        setup.wrap(model)
        if not setup.side.is_compiled:
            probe.attach()
        course = _Course(run, model, weights, probe, setup)
        course.run()
        training = setup.told(course.training)
    if course.traced and run.at == HIGH and setup.is_plain:
        # A script's loop is run on its own batches, which are float32.
        run = run._replace(at=run.case.precision if fitted.loop(course.traced) else HIGH)
        with precision.policy(run.at), precision.promoted(run.at):
            training = replace(training, fitted=fitted.compare(run, course.traced, course.changed))
    parameters = {name: [0] for name in weights.canonical_trained()}
    layout = Layout(devices=devices.physical(1), parameters=parameters)  # the first device's, where replicas train
    return Account(layout, probe.modules, promotions, training=training)


class _Course:
    """The sequence of passes and updates that one run consists of."""

    def __init__(self, run: Run, model: Any, weights: Weights, probe: Probe, setup: Setup):
        self.model, self.weights, self.probe = model, weights, probe
        self.case, self.pair, self.data = run.case, run.case.model, run.dataset
        self.halves, self.recorder = run.pair, run.recorders[0]
        self.evaluates, self.training = run.pair.evaluates, manifest.Training()
        self.setup, self.masks = setup, setup.draw(probe.counterparts.axes).holding(self.pair)
        self.masks.in_order(run.pair.draws)
        self.is_clipped = False
        self._stepped: set[Optimizer] = set()
        self.changed: list[str] = []  # what the training has changed in Python
        self.traced: Training | None = None  # the training, if `fit` would trace Python code of the user's in it

    def run(self) -> None:
        """Run the training and an evaluation; without [train] one inference, and back unless backward = false."""
        self.probe.on_step()
        if self.pair.train:
            self._train()
        if self.pair.train or not self.pair.backward:
            inputs = build.tensors(self.pair, self.data.step(0))
            self._record_inputs(inputs, 0)
            self.setup.end()
            self._record_outputs(self.setup.compile(self._called)(inputs), training=False)
        else:
            self._differentiate()
        self.recorder.next_step()

    def _train(self) -> None:
        case, probe = self.case, self.probe

        def on_return(outputs: Any) -> None:
            self._record_outputs(outputs, training=True)

        training = Training(
            case, self.model, self.data, self.halves, self.weights.torch, self._begin_forward, on_return, self.setup
        )
        self._update_by({unwrapped(training.optimizer)}, is_own=bool(self.pair.train.keras_optimizer))
        self.rates = [rate(self.updating.first)]
        states = [fitted.state(training)]
        causes_held: set[str] = set()
        for number in range(case.steps):
            batch = training.batch(number)
            if self.evaluates:
                with calls.unobserved(), self.masks.drawn(self.model):
                    build.call(self.model, self.pair, batch.inputs, training=False)
            self._record_inputs(batch.inputs, number)
            with (
                self.masks.drawn(self.model),
                dense_gradients(self.pair.accepts(SPARSE)) as made,
                epsilons(list(filter(self.pair.accepts, WITHIN))) as moved,
            ):
                training.step(number, functools.partial(self._record_step, batch))
            causes_held |= moved | ({SPARSE} if made else set())
            probe.on_step()
            self.masks.on_step()
            states.append(fitted.state(training))
            self.rates.append(rate(self.updating.first))
        limits = ((name, getattr(self.updating.first, name)) for name in ("clipnorm", "global_clipnorm", "clipvalue"))
        clipping = next((f"{name}={limit:g}" for name, limit in limits if limit is not None), "")
        self.training = replace(
            self.training,
            # Then the user's code may call the model otherwise than a loop that calls it once in a step.
            own_step=training.is_own or build.is_overridden(self.model, "compute_loss"),
            repeated=self.masks.repeats.places,
            causes_held=sorted(causes_held),
            rates=self.rates,
            is_scheduled=is_scheduled(self.updating.first),
            unreached="" if self.is_clipped or self.pair.train.has_own_step else clipping,
        )
        changes = (dict(set(a.items()) ^ set(b.items())) for a, b in itertools.pairwise(states))
        self.changed = sorted({name for change in changes for name in change})
        self.traced = training if self.changed or fitted.may_differ(training) else None
        training.finish()

    def _update_by(self, optimizers: Set[Optimizer], is_own: bool = True) -> None:
        """Record from now on the state of these optimizers; if they are the user's own, their settings too."""
        by_name = self.weights.by_name()
        self.updating = self.weights.optimizer = Joint(optimizers, by_name.values())
        if is_own:
            groups = self.updating.groups(by_name)
            self.training = replace(self.training, groups=groups, rate=rate(self.updating.first))

    def _begin_forward(self) -> None:
        self.probe.begin_forward()
        if isinstance(self.recorder, Parts):
            self.recorder.begin(devices.replica())
            self.probe.counterparts.begin_part()

    def _record_step(self, batch: Batch, step: Step) -> None:
        if isinstance(self.recorder, Parts):
            self.recorder.join()
        if step.rates.keys() - self._stepped:
            self._stepped |= step.rates.keys()
            if self._stepped != set(self.updating.optimizers):
                self._update_by(self._stepped)
        if (number := step.rates.get(self.updating.first)) is not None:
            self.rates[-1] = number
        for number, loss in enumerate(step.losses):
            self.probe.loss(loss, None if number else batch.canonical)
        waiting = self.training.waiting if step.updates else [*self.training.waiting, self.masks.step]
        if step.updates and self.masks.step == len(waiting):  # the first update
            self.recorder.keep_state()
        self.training = replace(self.training, returns_loss=step.returns_loss, waiting=waiting)
        self._record_gradients(step.gradients, {}, batch.inputs, self._evidence(step))

    def _differentiate(self) -> None:
        """Run a forward pass in inference mode, and the backward pass of a fixed weighted sum of the outputs."""
        inputs = build.tensors(self.pair, self.data.step(0))
        floats = {name: tensor for name, tensor in inputs.items() if tensor.dtype.is_floating}
        self._record_inputs(inputs, 0)
        variables = [held.variable for held in self.weights.trained()]

        def differentiated(floats: dict[str, tf.Tensor]) -> tuple[Any, tf.Tensor, Any]:
            with tf.GradientTape() as tape:
                tape.watch(list(floats.values()))
                outputs = self._called(inputs | floats)
                scalar = losses.probe(self._record_outputs(outputs, training=False, is_recorded=False), self.data)
            with build.user_errors(f"keras={self.pair.keras}: backward fails"):
                return outputs, scalar, tape.gradient(scalar, (variables, floats))

        outputs, scalar, (gradients, of_inputs) = self.setup.compile(differentiated)(floats)
        self._record_outputs(outputs, training=False)
        self.probe.loss(scalar, None)
        self._record_gradients(dict(zip(map(id, variables), gradients, strict=True)), of_inputs, inputs, {})

    def _record_inputs(self, inputs: Inputs, number: int) -> None:
        """Begin a forward pass, and record the inputs of a step in canonical axis order."""
        arrays = self.data.step(number)
        own = {name: arrays[name].astype(tensor.dtype.as_numpy_dtype) for name, tensor in inputs.items()}
        self.probe.forward(self.pair.shared(own))

    def _called(self, inputs: Inputs) -> Any:
        with self.masks.drawn(self.model, training=False), calls.entered(MODEL):
            return build.call(self.model, self.pair, inputs)

    def _record_outputs(self, outputs: Any, training: bool, is_recorded: bool = True) -> list[tf.Tensor]:
        in_order = ordered(outputs, self.weights.torch.keys(training))
        canonical = [(each.key, each.canonical) for each in laid_out(self.pair, in_order, self.halves.layouts)]
        if is_recorded:
            self.probe.outputs(canonical)
        return [tensor for _, tensor in canonical]

    def _evidence(self, step: Step) -> dict[str, Gradients]:
        """Return what the optimizer makes of the gradients: those that it changes, and the squares that it takes.

        It squares the values of IndexedSlices before the rows of one id are added (keras/src/optimizers/adam.py), to
        clip as well. Adamax adds their magnitudes. Where a step may clip by itself, the recorded gradients are those
        that are clipped.
        """
        given, applied, optimizer = step.gradients, step.applied, self.updating.first
        changed = any(not _is_same(each, given.get(key)) for key, each in applied.items())
        self.is_clipped |= changed
        evidence = {APPLIED: applied, CLIPPED: _squares(given)} if changed else {}
        if step.unclipped:
            scales = {key: tf.norm(applied[key]) / tf.norm(each) for key, each in step.unclipped.items()}
            evidence = {CLIPPED: {key: scales[key] ** 2 * each for key, each in _squares(step.unclipped).items()}}
        if isinstance(optimizer, keras.optimizers.SGD) and not changed:
            return evidence
        return {SQUARES: _squares(applied, isinstance(optimizer, keras.optimizers.Adamax)), **evidence}

    def _record_gradients(
        self, gradients: Gradients, of_inputs: Gradients, inputs: Inputs, evidence: dict[str, Gradients]
    ) -> None:
        """Record the gradients of the weights, and those of the inputs, where a missing one is of zeros."""
        by_input = {}
        for name, value in of_inputs.items():
            array = tf.convert_to_tensor(tf.zeros_like(inputs[name]) if value is None else value).numpy()
            layout = self.pair.inputs[name].keras_layout
            by_input[name] = rearrange(array, reverse(layout)) if layout else array
        self.probe.gradients(by_input, {key: each for key, each in gradients.items() if each is not None}, evidence)


def _is_same(one: Any, other: Any) -> bool:
    return one is other or (
        other is not None and np.array_equal(tf.convert_to_tensor(one), tf.convert_to_tensor(other))
    )


def _squares(gradients: Gradients, of_sums: bool = False) -> Gradients:
    """Return the squares of the lists of rows in which an id is repeated, added up; or of the sums of magnitudes."""
    slices = {key: each for key, each in gradients.items() if isinstance(each, tf.IndexedSlices)}
    repeated = {key: each for key, each in slices.items() if len(np.unique(each.indices)) < len(each.indices)}
    if of_sums:
        return {key: tf.square(_added(tf.abs, rows)) for key, rows in repeated.items()}
    return {key: _added(tf.square, rows) for key, rows in repeated.items()}


def _added(function: Callable[[tf.Tensor], tf.Tensor], rows: tf.IndexedSlices) -> tf.Tensor:
    return tf.convert_to_tensor(tf.IndexedSlices(function(rows.values), rows.indices, rows.dense_shape))


def program(case: Case, halves: PairContext) -> Program:
    """Return the model with the pair's weights, its inputs repeated, its training. Raises UsageError, BackendError."""
    pair, data = case.model, PairData(case, halves.search)
    model = ready(case, case.precision, halves.search, data.step(0))
    inputs = build.tensors(pair, data.step(0))
    weights = Weights.loaded(model, halves, survey.Initial(Path(halves.survey)))

    def infer(batches: Iterator[Inputs], on_step: Callable[[], None]) -> None:
        called = tf.function(lambda batch: build.call(model, pair, batch), autograph=False)
        for batch in batches:
            called(batch)
            on_step()

    def train(batches: Iterator[Inputs], on_step: Callable[[], None]) -> None:
        training = Training(case, model, data, halves, weights.torch)
        first, train_step = training.batch(0), tf.function(training.run, autograph=False)
        for batch in batches:
            train_step(first._replace(inputs=batch))
            on_step()

    return Program(model, iter([inputs]), train if pair.train else infer)
