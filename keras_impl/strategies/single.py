"""Everything on one device: the plain training loop, with gradient accumulation; compile and fit."""

from collections.abc import Callable, Iterable

import keras
import tensorflow as tf

from keras_impl.losses import Loss

MakeModel = Callable[[], keras.Model]
MakeOptimizer = Callable[[], keras.optimizers.Optimizer]
MicroBatch = tuple[tuple[tf.Tensor, ...], tf.Tensor, tf.Tensor]  # inputs, target, share of the step


def place(
    make_model: MakeModel,
    make_optimizer: MakeOptimizer,
    devices: list[str],
    input_shape: tuple,
) -> tuple[keras.Model, keras.optimizers.Optimizer]:
    """A model, built, and its optimizer, both on the first device."""
    with tf.device(devices[0]):
        model, optimizer = make_model(), make_optimizer()
        model.build(input_shape)
        optimizer.build(model.trainable_variables)
    return model, optimizer


def train(
    model: keras.Model,
    optimizer: keras.optimizers.Optimizer,
    loss: Loss,
    steps: Iterable[list[MicroBatch]],
    on_step: Callable[[], None] = lambda: None,
) -> None:
    """One update per step, from the gradients of its micro-batches added up; then `on_step()`."""

    @tf.function(autograph=False)  # no Python control flow over tensors to convert
    def train_step(micro_batches: list[MicroBatch]) -> None:
        optimizer.apply(gradients(model, loss, micro_batches), model.trainable_variables)

    for micro_batches in steps:
        train_step(micro_batches)
        on_step()


def gradients(model: keras.Model, loss: Loss, micro_batches: list[MicroBatch]) -> list[tf.Tensor]:
    """Those of sum(share * loss) over the micro-batches, one backward pass each."""
    total = None
    for inputs, target, share in micro_batches:
        with tf.GradientTape() as tape:
            value = loss(model(unpacked(inputs), training=True), target) * share
        # An embedding's gradient is a list of rows (IndexedSlices) until it is made dense.
        new = [tf.convert_to_tensor(gradient) for gradient in tape.gradient(value, model.trainable_variables)]
        total = new if total is None else [a + b for a, b in zip(total, new, strict=True)]
    return total


def fit(
    model: keras.Model,
    optimizer: keras.optimizers.Optimizer,
    loss: Loss,
    steps: Iterable[list[MicroBatch]],
    on_step: Callable[[], None] = lambda: None,
) -> None:
    """The same through compile and fit, one epoch over whole batches."""
    # No XLA, so that the same kernels run as in `train`; no loss scaling, which PyTorch does not do by itself.
    model.compile(optimizer, lambda target, outputs: loss(outputs, target), jit_compile=False, auto_scale_loss=False)
    after_batch = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: on_step())
    model.fit(dataset(steps), epochs=1, verbose=0, callbacks=[after_batch])


def dataset(steps: Iterable[list[MicroBatch]]) -> tf.data.Dataset:
    """The whole batches, all of one size, as elements (inputs, target)."""
    batches = [(unpacked(inputs), target) for [(inputs, target, _)] in steps]
    samples = tf.nest.map_structure(lambda *parts: tf.concat(parts, 0), *batches)
    return tf.data.Dataset.from_tensor_slices(samples).batch(len(batches[0][1]), drop_remainder=True)


def evaluate(model: keras.Model, inputs: tuple[tf.Tensor, ...]) -> tf.Tensor:
    """The outputs as a user of the trained model gets them; a single batch is not worth a trace."""
    return model(unpacked(inputs), training=False)


def unpacked(inputs: tuple[tf.Tensor, ...]) -> tf.Tensor | tuple[tf.Tensor, ...]:
    """A Keras model takes one structure: a tensor, or a tuple of them."""
    return inputs if len(inputs) > 1 else inputs[0]
