"""The whole model on one device: a plain training loop, with gradient accumulation; and compile and fit."""

from collections.abc import Callable, Iterable

import keras
import tensorflow as tf
from keras.optimizers import Optimizer

from keras_impl.losses import Loss

MakeModel = Callable[[], keras.Model]
MakeOptimizer = Callable[[], Optimizer]
Placed = tuple[keras.Model, Optimizer]
MicroBatch = tuple[tuple[tf.Tensor, ...], tf.Tensor, tf.Tensor]  # inputs, target, share of the step's loss
Steps = Iterable[list[MicroBatch]]
ReplicaSteps = Iterable[list[list[MicroBatch]]]  # the micro-batches of every replica
OnStep = Callable[[], None]


def place(make_model: MakeModel, make_optimizer: MakeOptimizer, devices: list[str], input_shape: tuple) -> Placed:
    """Build the model and its optimizer on the first device."""
    with tf.device(devices[0]):
        model, optimizer = make_model(), make_optimizer()
        model.build(input_shape)
        optimizer.build(model.trainable_variables)
    return model, optimizer


def train(model: keras.Model, optimizer: Optimizer, loss: Loss, steps: Steps, on_step: OnStep) -> None:
    """Make one update per step, from the summed gradients of its micro-batches; then call `on_step`."""

    @tf.function(autograph=False)  # there is no Python control flow over tensors to convert
    def train_step(micro_batches: list[MicroBatch]) -> None:
        optimizer.apply(gradients(model, loss, micro_batches), model.trainable_variables)

    for micro_batches in steps:
        train_step(micro_batches)
        on_step()


def gradients(model: keras.Model, loss: Loss, micro_batches: list[MicroBatch]) -> list[tf.Tensor]:
    """Return the gradients of the sum of share * loss, with a backward pass for each micro-batch, as in PyTorch."""
    total = None
    for inputs, target, share in micro_batches:
        with tf.GradientTape() as tape:
            value = loss(model(unpacked(inputs), training=True), target) * share
        # An embedding's gradient is a list of rows (IndexedSlices) until it is made dense.
        new = [tf.convert_to_tensor(gradient) for gradient in tape.gradient(value, model.trainable_variables)]
        total = new if total is None else [a + b for a, b in zip(total, new, strict=True)]
    return total


def fit(model: keras.Model, optimizer: Optimizer, loss: Loss, steps: Steps, on_step: OnStep) -> None:
    """Train like `train`, but through compile and fit: one epoch, on whole batches."""
    # No XLA, so that the same kernels run as in `train`; no loss scaling, which PyTorch does not do on its own either.
    model.compile(optimizer, lambda target, outputs: loss(outputs, target), jit_compile=False, auto_scale_loss=False)
    after_batch = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: on_step())
    model.fit(dataset(steps), epochs=1, verbose=0, callbacks=[after_batch])


def dataset(steps: Steps) -> tf.data.Dataset:
    """Return a dataset of the whole batches, which must be of one size, with elements (inputs, target)."""
    batches = [(unpacked(inputs), target) for [(inputs, target, _)] in steps]
    samples = tf.nest.map_structure(lambda *parts: tf.concat(parts, 0), *batches)
    return tf.data.Dataset.from_tensor_slices(samples).batch(len(batches[0][1]), drop_remainder=True)


def evaluate(model: keras.Model, inputs: tuple[tf.Tensor, ...]) -> tf.Tensor:
    """Return the model's outputs in inference mode; eagerly, because a single batch is not worth compiling."""
    return model(unpacked(inputs), training=False)


def unpacked(inputs: tuple[tf.Tensor, ...]) -> tf.Tensor | tuple[tf.Tensor, ...]:
    """Return what a Keras model takes: the tensor itself if there is only one, else the tuple."""
    return inputs if len(inputs) > 1 else inputs[0]
