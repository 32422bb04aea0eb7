"""Model parallelism in one process: a stage per device; activations are copied forward, gradients copied back.

TensorFlow runs backward ops on the device where the program stands, whatever device the forward pass ran on. So each
stage has a gradient tape of its own, which is evaluated under the stage's device, and the gradient of the stage's input
is passed to the previous stage.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import keras
import tensorflow as tf
from keras.optimizers import Optimizer

from keras_impl.losses import Loss
from keras_impl.models.block import Stage, as_tuple, stages
from keras_impl.strategies.single import MakeModel, MakeOptimizer, MicroBatch, OnStep, Placed, Steps

Gradients = list[list[tf.Tensor]]  # by stage, then by variable
FROM_HOST = "from_host"  # the name scope of the ops that copy a batch to the devices


def place(
    make_model: MakeModel,
    make_optimizer: MakeOptimizer,
    devices: list[str],
    input_shape: tuple,
    stage_blocks: Sequence[int] = (),
) -> Placed:
    """Build the model, with each stage's variables on its device, and its optimizer.

    There are as many stages as `devices` has entries, which may repeat. `stage_blocks`: of how many of the model's
    blocks each stage consists, by default nearly as many each.
    """
    model, optimizer = make_model(), make_optimizer()
    model.devices, model.stage_blocks = devices, tuple(stage_blocks)
    for stage, device in _stages(model):
        for layer in stage.parts:
            layer.build = under(device, layer.build)
    model.build(input_shape)
    optimizer.build(model.trainable_variables)  # its slots are created on the devices of the variables
    return model, optimizer


def under(device: str, function: Callable) -> Callable:
    """Wrap a function so that it runs on `device`."""

    def called(*args, **kwargs):
        with tf.device(device):
            return function(*args, **kwargs)

    return called


def _stages(model: keras.Model) -> list[tuple[Stage, str]]:
    """Return the stages of a placed model, each with its device."""
    return list(zip(stages(model.blocks(), len(model.devices), model.stage_blocks), model.devices, strict=True))


class Chain:
    """The stages of a placed model, each on its device."""

    def __init__(self, model: keras.Model):
        self.devices = model.devices
        self.stages = [stage for stage, _ in _stages(model)]

    @property
    def variables(self) -> list[keras.Variable]:
        return [variable for stage in self.stages for variable in stage.variables]

    def put(self, micro_batch: MicroBatch) -> MicroBatch:
        """Copy the inputs to the first stage's device, target and share to the last stage's."""
        inputs, target, share = micro_batch
        with tf.name_scope(FROM_HOST):
            return tuple(received(self.devices[0], inputs)), *received(self.devices[-1], (target, share))

    def forward(self, number: int, tensors: tuple[tf.Tensor, ...]) -> "Passed":
        """Run one stage's forward pass on the outputs of the previous stage."""
        with tf.device(self.devices[number]), tf.GradientTape() as tape:
            tensors = received(self.devices[number], tensors)
            if number:  # nobody needs the gradient of the model's inputs
                tape.watch(tensors)
            outputs = as_tuple(self.stages[number].call(*tensors, training=True))
        return Passed(tape, tensors, outputs)

    def loss(self, loss: Loss, passed: "Passed", micro_batch: MicroBatch) -> tuple[tf.Tensor, ...]:
        """Return the gradient of the loss with respect to the last stage's outputs, where the backward pass starts."""
        _, target, share = micro_batch
        with tf.device(self.devices[-1]):
            with tf.GradientTape() as tape:
                tape.watch(passed.outputs)
                value = loss(*passed.outputs, target) * share
            return tape.gradient(value, passed.outputs)

    def backward(
        self, number: int, passed: "Passed", upstream: tuple[tf.Tensor, ...]
    ) -> tuple[list[tf.Tensor], tuple[tf.Tensor, ...]]:
        """Return the gradients of one stage's variables and of its inputs, from those of its outputs."""
        pairs = zip(passed.outputs, upstream, strict=True)
        if number == 0:  # model inputs that the stage only passed along need no gradient
            pairs = [(output, up) for output, up in pairs if not any(output is x for x in passed.inputs)]
        outputs, upstream = zip(*pairs, strict=True)
        with tf.device(self.devices[number]):
            sources = self.stages[number].variables, passed.inputs if number else []
            gradients, downstream = passed.tape.gradient(outputs, sources, received(self.devices[number], upstream))
            return [tf.convert_to_tensor(gradient) for gradient in gradients], downstream

    def add(self, number: int, total: list[tf.Tensor] | None, new: list[tf.Tensor]) -> list[tf.Tensor]:
        """Add the gradients of one stage's micro-batches, on the stage's device."""
        with tf.device(self.devices[number]):
            return new if total is None else [a + b for a, b in zip(total, new, strict=True)]


class Passed(NamedTuple):
    """What a stage's forward pass leaves for its backward pass."""

    tape: tf.GradientTape
    inputs: list[tf.Tensor]
    outputs: tuple[tf.Tensor, ...]


def received(device: str, tensors: Iterable[tf.Tensor]) -> list[tf.Tensor]:
    """Copy tensors to `device`; this takes the place of a send and a receive between processes."""
    with tf.device(device):
        return [tf.identity(tensor) for tensor in tensors]


def train(model: keras.Model, optimizer: Optimizer, loss: Loss, steps: Steps, on_step: OnStep) -> None:
    """Make one update per step, with one micro-batch after the other through all stages; then call `on_step`."""
    chain = Chain(model)

    @tf.function(autograph=False)
    def train_step(micro_batches: list[MicroBatch]) -> None:
        total = [None] * len(chain.stages)
        for micro_batch in micro_batches:
            for number, new in enumerate(forward_and_backward(chain, loss, chain.put(micro_batch))):
                total[number] = chain.add(number, total[number], new)
        optimizer.apply([gradient for stage in total for gradient in stage], chain.variables)

    for micro_batches in steps:
        train_step(micro_batches)
        on_step()


def forward_and_backward(chain: Chain, loss: Loss, micro_batch: MicroBatch) -> Gradients:
    """Return the gradients of one micro-batch by stage: forward through all stages, then backward."""
    passed, tensors = [], micro_batch[0]
    for number in range(len(chain.stages)):
        passed.append(chain.forward(number, tensors))
        tensors = passed[-1].outputs
    upstream = chain.loss(loss, passed[-1], micro_batch)
    gradients = []
    for number in reversed(range(len(chain.stages))):
        stage_gradients, upstream = chain.backward(number, passed[number], upstream)
        gradients.insert(0, stage_gradients)
    return gradients


def evaluate(model: keras.Model, inputs: tuple[tf.Tensor, ...]) -> tf.Tensor:
    """Return the model's outputs in inference mode."""
    for stage, device in _stages(model):
        with tf.device(device):
            inputs = as_tuple(stage.call(*received(device, inputs)))
    return inputs[0]
