"""One run of a user's model, recorded: a forward and a backward pass, or some steps of training. It runs eagerly."""

from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from einops import rearrange

from keras_impl import optimizers
from keras_impl.harness import devices, precision
from keras_impl.harness.masks import OrderedMasks
from keras_impl.harness.pair import build, layers, losses
from keras_impl.harness.pair.calls import whole
from keras_impl.harness.pair.first_call import make_weights
from keras_impl.harness.pair.outputs import Output, laid_out, ordered
from keras_impl.harness.pair.probe import Probe
from keras_impl.harness.pair.values import Weights
from keras_impl.harness.promotion import lifted
from parity.core.errors import UsageError
from parity.doctor.program import load
from parity.runtime.drive import Account, Run
from parity.trace import survey
from parity.trace.layout import Layout


def run(run: Run) -> Account:
    """Build the user's model anew, give it the weights of the run, and record what it does."""
    pair, halves = run.case.model, run.pair
    assert halves and halves.mapping
    keras.utils.clear_session()
    keras.utils.set_random_seed(run.case.seed)
    with precision.policy(run.at), lifted(run.at) as places:
        model = build.build(pair, run.at, halves.search)
        make_weights(model, pair, build.tensors(pair, run.dataset.step(0)))
        torch = survey.read(Path(halves.survey))
        weights = Weights(model, halves.mapping, torch)
        weights.check()
        weights.load(run.weights)
        probe = Probe(run, model, torch)
        _Course(run, model, weights, probe, torch).run()
    parameters = {name: [0] for name in weights.canonical_trained()}
    return Account(Layout(devices=devices.physical(1), parameters=parameters), probe.modules, places)


class _Course:
    """What happens to a model in a run."""

    def __init__(self, run: Run, model: Any, weights: Weights, probe: Probe, torch: survey.Survey):
        self.model, self.weights, self.probe = model, weights, probe
        self.case, self.pair, self.data = run.case, run.case.model, run.dataset
        self.search, self.recorder = run.pair.search, run.recorders[0]
        self.variables = weights.trained()
        self.torch = torch
        self.layouts = run.pair.matching.layouts if run.pair.matching else {}

    def run(self) -> None:
        """With [train] its steps and an evaluation, else a forward and a backward pass in inference."""
        self.probe.state(self.weights, None)
        self.recorder.next_step()
        if self.pair.train is None:
            self._gradients(0, training=False)
            self.recorder.next_step()
            return
        self._train()
        self._forward(self._inputs(0), training=False)
        self.recorder.next_step()

    def _train(self) -> None:
        optimizer = self._optimizer()
        optimizer.build([held.variable for held in self.variables])
        masks = OrderedMasks(self.case.seed, self.probe.axes)
        for number in range(self.case.steps):
            with masks.drawn(layers.named(self.model).items()):
                gradients = self._gradients(number, training=True)
            pairs = [(g, held.variable) for g, held in zip(gradients, self.variables, strict=True) if g is not None]
            with build.user_errors("the optimizer's step fails"):
                optimizer.apply([gradient for gradient, _ in pairs], [variable for _, variable in pairs])
            self.probe.state(self.weights, optimizer)
            self.recorder.next_step()
            masks.on_step()

    def _inputs(self, number: int) -> dict[str, tf.Tensor]:
        arrays = self.data.step(number)
        inputs = build.tensors(self.pair, arrays)
        own = {name: inputs[name].dtype.as_numpy_dtype for name in arrays}
        self.probe.inputs([array.astype(own[name]) for name, array in arrays.items()])
        return inputs

    def _forward(self, inputs: dict[str, tf.Tensor], training: bool) -> tuple[Any, list[Output]]:
        """What the model returned, and its tensors with their layouts."""
        outputs = whole(build.call, self.model, self.pair, inputs, training)
        canonical = laid_out(self.pair, ordered(outputs, self.torch.keys(training)), self.layouts)
        self.probe.outputs([(one.key, one.canonical) for one in canonical])
        return outputs, canonical

    def _gradients(self, number: int, training: bool) -> list[tf.Tensor | None]:
        """Forward, loss and backward of a step."""
        inputs = self._inputs(number)
        floats = {name: tensor for name, tensor in inputs.items() if tensor.dtype.is_floating}
        with tf.GradientTape() as tape:
            tape.watch(list(floats.values()))
            outputs, canonical = self._forward(inputs, training)
            scalar = self._scalar(outputs, canonical, number)
        self.probe.loss(scalar.value, scalar.target)
        variables = [held.variable for held in self.variables]
        with build.user_errors(f"keras={self.pair.keras}: backward fails"):
            gradients, of_inputs = tape.gradient(scalar.value, (variables, list(floats.values())))
        by_name = zip((held.told.name for held in self.variables), gradients, strict=True)
        found = {name: gradient for name, gradient in by_name if gradient is not None}
        named_inputs = zip(floats, of_inputs, strict=True)
        own = {
            name: self._canonical_input(name, tf.zeros_like(floats[name]) if each is None else each)
            for name, each in named_inputs
        }
        self.probe.gradients(self.weights, found, own)
        return gradients

    def _scalar(self, outputs: Any, canonical: list[Output], number: int) -> losses.Scalar:
        if self.pair.train is None:
            return losses.probe([one.canonical for one in canonical], self.data)
        own = losses.training(self.pair, outputs, canonical, self.data, number, self.search)
        return losses.with_added(own, self.model)

    def _canonical_input(self, name: str, gradient: Any) -> np.ndarray:
        array = tf.convert_to_tensor(gradient).numpy()
        here, _, there = self.pair.inputs[name].keras_layout.partition("->")
        return rearrange(array, f"{there} -> {here}") if here else array

    def _optimizer(self) -> keras.optimizers.Optimizer:
        name = self.pair.train.keras_optimizer
        if not name:
            return optimizers.build(self.case)
        with build.user_errors(f"train.keras_optimizer={name} fails"):
            optimizer = load("train.keras_optimizer", name, search=self.search)()
        if not isinstance(optimizer, keras.optimizers.Optimizer):
            raise UsageError(
                f"train.keras_optimizer={name}: expected a keras.optimizers.Optimizer, "
                f"received {type(optimizer).__name__}"
            )
        return optimizer
