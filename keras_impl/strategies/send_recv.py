"""The model cut into consecutive stages, one per device; activations go forward, gradients come back.

TensorFlow runs the ops of a backward pass where the program stands, whatever device the forward pass
ran on. So each stage has a tape of its own, asked under the stage's device, and the gradient of its
input is handed to the stage before.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import keras
import tensorflow as tf

from keras_impl.losses import Loss
from keras_impl.models.block import as_tuple, stages
from keras_impl.strategies.single import MakeModel, MakeOptimizer, MicroBatch

Gradients = list[list[tf.Tensor]]  # of each stage's variables


def place(
    make_model: MakeModel,
    make_optimizer: MakeOptimizer,
    devices: list[str],
    input_shape: tuple,
) -> tuple[keras.Model, keras.optimizers.Optimizer]:
    """A model, built, each stage's variables on its device, and its optimizer.

    As many stages as there are devices named, which may repeat.
    """
    model, optimizer = make_model(), make_optimizer()
    model.devices = devices
    for stage, device in zip(stages(model.blocks(), len(devices)), devices, strict=True):
        for layer in stage.parts:
            layer.build = under(device, layer.build)
    model.build(input_shape)
    optimizer.build(model.trainable_variables)  # its slots are made where the variables are
    return model, optimizer


def under(device: str, function: Callable) -> Callable:
    """The function, run on `device`."""

    def called(*args, **kwargs):
        with tf.device(device):
            return function(*args, **kwargs)

    return called


class Chain:
    """The stages of a placed model, each on its device."""

    def __init__(self, model: keras.Model):
        self.devices = model.devices
        self.stages = stages(model.blocks(), len(self.devices))

    @property
    def variables(self) -> list[keras.Variable]:
        return [variable for stage in self.stages for variable in stage.variables]

    def put(self, micro_batch: MicroBatch) -> MicroBatch:
        """Inputs on the first stage's device, target and share on the last one's."""
        inputs, target, share = micro_batch
        return tuple(received(self.devices[0], inputs)), *received(self.devices[-1], (target, share))

    def forward(self, number: int, tensors: tuple[tf.Tensor, ...]) -> "Passed":
        """One stage's forward pass over what the stage before has sent."""
        with tf.device(self.devices[number]), tf.GradientTape() as tape:
            tensors = received(self.devices[number], tensors)
            if number:  # nobody asks for the gradient of the model's inputs
                tape.watch(tensors)
            outputs = as_tuple(self.stages[number].call(*tensors, training=True))
        return Passed(tape, tensors, outputs)

    def loss(self, loss: Loss, passed: "Passed", micro_batch: MicroBatch) -> tuple[tf.Tensor, ...]:
        """The gradient of the loss by the last stage's output, which sets out backwards."""
        _, target, share = micro_batch
        with tf.device(self.devices[-1]):
            with tf.GradientTape() as tape:
                tape.watch(passed.outputs)
                value = loss(*passed.outputs, target) * share
            return tape.gradient(value, passed.outputs)

    def backward(
        self, number: int, passed: "Passed", upstream: tuple[tf.Tensor, ...]
    ) -> tuple[list[tf.Tensor], tuple[tf.Tensor, ...]]:
        """One stage's backward pass: the gradients of its variables, and of what it had received."""
        pairs = zip(passed.outputs, upstream, strict=True)
        if number == 0:  # inputs of the model that were only passed on want no gradient
            pairs = [(output, up) for output, up in pairs if not any(output is x for x in passed.inputs)]
        outputs, upstream = zip(*pairs, strict=True)
        with tf.device(self.devices[number]):
            sources = self.stages[number].variables, passed.inputs if number else []
            gradients, downstream = passed.tape.gradient(outputs, sources, received(self.devices[number], upstream))
            return [tf.convert_to_tensor(gradient) for gradient in gradients], downstream

    def add(self, number: int, total: list[tf.Tensor] | None, new: list[tf.Tensor]) -> list[tf.Tensor]:
        """The gradients of one stage's micro-batches added up."""
        with tf.device(self.devices[number]):
            return new if total is None else [a + b for a, b in zip(total, new, strict=True)]


class Passed(NamedTuple):
    """What one stage's forward pass leaves for its backward pass."""

    tape: tf.GradientTape
    inputs: list[tf.Tensor]
    outputs: tuple[tf.Tensor, ...]


def received(device: str, tensors: Iterable[tf.Tensor]) -> list[tf.Tensor]:
    """Copies on `device`: what is a send and a receive elsewhere."""
    with tf.device(device):
        return [tf.identity(tensor) for tensor in tensors]


def train(
    model: keras.Model,
    optimizer: keras.optimizers.Optimizer,
    loss: Loss,
    steps: Iterable[list[MicroBatch]],
    on_step: Callable[[], None] = lambda: None,
) -> None:
    """One update per step; a micro-batch goes all the way forward and back before the next. Then `on_step()`."""
    chain = Chain(model)

    @tf.function(autograph=False)
    def train_step(micro_batches: list[MicroBatch]) -> None:
        total = [None] * len(chain.stages)
        for micro_batch in micro_batches:
            for number, new in enumerate(there_and_back(chain, loss, micro_batch)):
                total[number] = chain.add(number, total[number], new)
        optimizer.apply([gradient for stage in total for gradient in stage], chain.variables)

    for micro_batches in steps:
        train_step([chain.put(micro_batch) for micro_batch in micro_batches])
        on_step()


def there_and_back(chain: Chain, loss: Loss, micro_batch: MicroBatch) -> Gradients:
    """Forward through all stages, then backward: the gradients of each stage's variables."""
    passed, tensors = [], micro_batch[0]
    for number in range(len(chain.stages)):
        passed.append(chain.forward(number, tensors))
        tensors = passed[-1].outputs
    upstream = chain.loss(loss, passed[-1], micro_batch)
    gradients = []
    for number in reversed(range(len(chain.stages))):
        found, upstream = chain.backward(number, passed[number], upstream)
        gradients.insert(0, found)
    return gradients


def evaluate(model: keras.Model, inputs: tuple[tf.Tensor, ...]) -> tf.Tensor:
    """The outputs as a user of the trained model gets them."""
    for stage, device in zip(stages(model.blocks(), len(model.devices)), model.devices, strict=True):
        with tf.device(device):
            inputs = as_tuple(stage.call(*received(device, inputs)))
    return inputs[0]
