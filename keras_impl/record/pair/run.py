"""One recorded run of a user's model: a forward and a backward pass, or some steps of training. All runs eagerly."""

from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from einops import rearrange

from keras_impl.instruments import devices
from keras_impl.record import calls, precision, tree
from keras_impl.record.canonical import Replica
from keras_impl.record.layout_recorder import LayoutRecorder
from keras_impl.record.masks import OrderedMasks
from keras_impl.record.pair import build, losses
from keras_impl.record.pair.counterparts import Counterparts
from keras_impl.record.pair.first_call import make_weights
from keras_impl.record.pair.optimizers import made
from keras_impl.record.pair.outputs import Output, laid_out, ordered
from keras_impl.record.pair.values import Weights
from keras_impl.record.probe import Probe
from keras_impl.record.promotion import promoted
from parity.core.names import MODEL
from parity.runtime.drive import Account, Run
from parity.trace import survey
from parity.trace.layout import Layout


def run(run: Run) -> Account:
    """Build the user's model anew, load the run's weights into it, and record what it does."""
    pair, halves = run.case.model, run.pair
    assert halves and halves.mapping
    keras.utils.clear_session()
    keras.utils.set_random_seed(run.case.seed)
    with precision.policy(run.at), promoted(run.at) as promotions:
        model = build.build(pair, run.at, halves.search)
        make_weights(model, pair, build.tensors(pair, run.dataset.step(0)))
        torch = survey.read(Path(halves.survey))
        weights = Weights(model, halves.mapping, torch, run.weights)
        weights.check()
        weights.load()
        replica = Replica(run.recorders[0], model, None, weights)
        probe = Probe({0: replica}, run.case, LayoutRecorder(1), Counterparts(run, model, torch))
        probe.attach()
        _Course(run, model, weights, probe, torch).run()
    parameters = {name: [0] for name in weights.canonical_trained()}
    return Account(Layout(devices=devices.physical(1), parameters=parameters), probe.modules, promotions)


class _Course:
    """The sequence of passes and updates that one run consists of."""

    def __init__(self, run: Run, model: Any, weights: Weights, probe: Probe, torch: survey.Survey):
        self.model, self.weights, self.probe = model, weights, probe
        self.case, self.pair, self.data = run.case, run.case.model, run.dataset
        self.search, self.recorder = run.pair.search, run.recorders[0]
        self.variables = weights.trained()
        self.torch = torch
        self.layouts = run.pair.matching.layouts if run.pair.matching else {}

    def run(self) -> None:
        """Run the training steps and an evaluation if the pair has [train], else one pass in inference mode.

        The single pass is forward and backward, or forward alone with backward = false.
        """
        self.probe.on_step()
        if self.pair.train is None:
            if self.pair.backward:
                self._gradients(0, training=False)
            else:
                self._forward(self._inputs(0), training=False)
            self.recorder.next_step()
            return
        self._train()
        self._forward(self._inputs(0), training=False)
        self.recorder.next_step()

    def _train(self) -> None:
        optimizer = made(self.case, [held.variable for held in self.variables], self.search)
        self.weights.optimizer = optimizer
        masks = OrderedMasks(self.case.seed, self.probe.counterparts.axes)
        for step in range(self.case.steps):
            with masks.drawn(tree.named(self.model).items()):
                gradients = self._gradients(step, training=True)
            pairs = [(g, held.variable) for g, held in zip(gradients, self.variables, strict=True) if g is not None]
            with build.user_errors("the optimizer's step fails"):
                optimizer.apply([gradient for gradient, _ in pairs], [variable for _, variable in pairs])
            self.probe.on_step()
            masks.on_step()

    def _inputs(self, step: int) -> dict[str, tf.Tensor]:
        arrays = self.data.step(step)
        inputs = build.tensors(self.pair, arrays)
        dtypes = {name: inputs[name].dtype.as_numpy_dtype for name in arrays}
        self.probe.forward([array.astype(dtypes[name]) for name, array in arrays.items()])
        return inputs

    def _forward(self, inputs: dict[str, tf.Tensor], training: bool) -> tuple[Any, list[Output]]:
        """Return the outputs as the model returned them, and as a list of tensors with their layouts."""
        with calls.entered(MODEL):
            outputs = build.call(self.model, self.pair, inputs, training)
        canonical = laid_out(self.pair, ordered(outputs, self.torch.keys(training)), self.layouts)
        self.probe.outputs([(output.key, output.canonical) for output in canonical])
        return outputs, canonical

    def _gradients(self, step: int, training: bool) -> list[tf.Tensor | None]:
        """Run the forward pass, loss and backward pass of one step."""
        inputs = self._inputs(step)
        floats = {name: tensor for name, tensor in inputs.items() if tensor.dtype.is_floating}
        with tf.GradientTape() as tape:
            tape.watch(list(floats.values()))
            outputs, canonical = self._forward(inputs, training)
            scalar = self._scalar(outputs, canonical, step)
        self.probe.loss(scalar.value, scalar.target)
        variables = [held.variable for held in self.variables]
        with build.user_errors(f"keras={self.pair.keras}: backward fails"):
            gradients, of_inputs = tape.gradient(scalar.value, (variables, list(floats.values())))
        pairs = zip(variables, gradients, strict=True)
        by_variable = {id(variable): gradient for variable, gradient in pairs if gradient is not None}
        named_inputs = zip(floats, of_inputs, strict=True)
        canonical_inputs = {
            name: self._canonical_input(name, tf.zeros_like(floats[name]) if value is None else value)
            for name, value in named_inputs
        }
        self.probe.gradients(canonical_inputs, by_variable)
        return gradients

    def _scalar(self, outputs: Any, canonical: list[Output], step: int) -> losses.Scalar:
        if self.pair.train is None:
            return losses.probe([output.canonical for output in canonical], self.data)
        scalar = losses.training(self.pair, outputs, canonical, self.data, step, self.search)
        return losses.with_added(scalar, self.model)

    def _canonical_input(self, name: str, gradient: Any) -> np.ndarray:
        array = tf.convert_to_tensor(gradient).numpy()
        canonical_axes, _, own_axes = self.pair.inputs[name].keras_layout.partition("->")
        return rearrange(array, f"{own_axes} -> {canonical_axes}") if canonical_axes else array
