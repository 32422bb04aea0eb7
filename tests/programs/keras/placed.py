"""What lives, is copied or runs on another device than it should: layers, variables, masks and backward passes."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

from tests.programs.keras.usual import step as usual_step
from tests.programs.keras.usual import update, with_sgd

step = usual_step


def placed_dense(device, size, inputs, **options):
    with tf.device(device):
        dense = layers.Dense(size, **options)
        dense.build((None, inputs))
    return dense


def by_stages(model, inputs):
    """A tape of each stage's own: the backward pass runs where its tape is asked."""
    first, second = model.first.trainable_variables, model.second.trainable_variables
    with tf.device("/GPU:0"), tf.GradientTape() as tape0:
        sent = model.first(tf.identity(inputs["x"]))
    with tf.device("/GPU:1"):
        with tf.GradientTape() as tape1:
            received = tf.identity(sent)
            tape1.watch(received)
            loss = tf.reduce_mean(tf.square(model.second(received)))
        returned, *gradients1 = tape1.gradient(loss, [received, *second])
    with tf.device("/GPU:0"):
        gradients0 = tape0.gradient(sent, first, output_gradients=tf.identity(returned))
    model.optimizer.apply([*gradients0, *gradients1], [*first, *second])


class Pipeline(keras.Model):
    """Ten layers, cut in two at the wrong one: one device holds nine tenths of them."""

    def __init__(self, cut):
        super().__init__()
        blocks = [layers.Dense(64) for _ in range(10)]
        with tf.device("/GPU:0"):
            self.first = keras.Sequential(blocks[:cut])
            self.first.build((None, 64))
        with tf.device("/GPU:1"):  # fault: lopsided
            self.second = keras.Sequential(blocks[cut:])
            self.second.build((None, 64))


def build_lopsided(cut=1):
    return with_sgd(Pipeline(cut), 0.01)


def build_lopsided_right():
    return build_lopsided(cut=5)


lopsided = by_stages


class Stack(keras.Model):
    """Layers made in a loop, all of them on the first device."""

    def __init__(self):
        super().__init__()
        self.blocks = []
        for _ in range(4):
            with tf.device("/GPU:0"):  # fault: one_device
                block = layers.Dense(64, activation="relu")
                block.build((None, 64))
            self.blocks.append(block)

    def call(self, x):
        for block in self.blocks:
            x = block(x)
        return x


def build_one_device():
    return with_sgd(Stack())


build_one_device_right = build_lopsided_right
one_device_right = by_stages


class Two(keras.Model):
    """The second is called where the program stands, not where it lives."""

    def __init__(self):
        super().__init__()
        self.first = placed_dense("/GPU:0", 16, 16, activation="tanh")
        self.second = placed_dense("/GPU:1", 16, 16)

    def call(self, x):
        return self.second(self.first(x))  # fault: round_robin


def two():
    return with_sgd(Two())


build_round_robin = build_unused_device = build_backward_elsewhere = two
round_robin_right = backward_elsewhere_right = by_stages

unused_device = by_stages  # a model on two of three devices


def unused_device_right(model, inputs):
    by_stages(model, inputs)
    with tf.device("/GPU:2"):
        model.norm = tf.sqrt(sum(tf.reduce_sum(tf.square(variable)) for variable in model.trainable_variables))


def backward_elsewhere(model, inputs):
    """The forward pass is placed layer by layer; the backward pass is left on the first device."""
    with tf.GradientTape() as tape:
        with tf.device("/GPU:0"):
            hidden = model.first(tf.identity(inputs["x"]))
        with tf.device("/GPU:1"):
            loss = tf.reduce_mean(tf.square(model.second(tf.identity(hidden))))
    gradients = tape.gradient(loss, model.trainable_variables)  # fault: backward_elsewhere
    model.optimizer.apply(gradients, model.trainable_variables)


class Hosted(keras.Model):
    """A layer that was put on the host, beside layers on the GPU."""

    def __init__(self, device):
        super().__init__()
        with tf.device(device):
            self.body = layers.Dense(32, activation="relu")  # fault: parameter_elsewhere
            self.body.build((None, 16))
        self.head = placed_dense("/GPU:0", 4, 32)

    def call(self, x):
        return self.head(self.body(x))


def build_parameter_elsewhere(device="/CPU:0"):
    return with_sgd(Hosted(device))


def build_parameter_elsewhere_right():
    return build_parameter_elsewhere("/GPU:0")


class Masked(layers.Layer):
    """A table that is not trained, made on the host, in a layer that lives on the GPU."""

    def __init__(self, device):
        super().__init__()
        self.device = device

    def build(self, shape):
        self.kernel = self.add_weight(shape=(shape[-1], 16), initializer="glorot_uniform", name="kernel")
        with tf.device(self.device):
            self.mask = self.add_weight(shape=(8, 16), initializer="ones", trainable=False, name="mask")

    def call(self, x):
        return tf.matmul(x, self.kernel) * self.mask


def build_buffer_elsewhere(device="/CPU:0"):
    return with_sgd(keras.Sequential([Masked(device), layers.Dense(4)]))  # fault: buffer_elsewhere


def build_buffer_elsewhere_right():
    return build_buffer_elsewhere("/GPU:0")


class Block(layers.Layer):
    """Every block sends the mask of the batch to the GPU again."""

    def __init__(self):
        super().__init__()
        self.dense = layers.Dense(16)

    def call(self, x, mask):
        with tf.device("/GPU:0"):
            mask = tf.identity(mask)  # fault: copied_again
        return x + self.dense(x) * mask


class Blocks(keras.Model):
    def __init__(self):
        super().__init__()
        self.blocks = [Block() for _ in range(3)]

    def call(self, x, mask):
        for block in self.blocks:
            x = block(x, mask)
        return x


def build_copied_again():
    return with_sgd(Blocks())


def copied_again(model, inputs):
    with tf.device("/GPU:0"):
        x = tf.identity(inputs["x"])
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(x, inputs["mask"])))
    update(model, tape, loss)


def copied_again_right(model, inputs):
    with tf.device("/GPU:0"):
        copied_again(model, {name: tf.identity(tensor) for name, tensor in inputs.items()})


class Attention(layers.Layer):
    """A causal mask that NumPy makes in every step, on the host."""

    def __init__(self):
        super().__init__()
        self.attention = layers.MultiHeadAttention(2, 8)
        # right: self.mask = self.add_weight(shape=(1, 12, 12), initializer="ones", trainable=False)
        # right: self.mask.assign(np.tril(np.ones((1, 12, 12), np.float32)))

    def call(self, x):
        mask = tf.constant(np.tril(np.ones((1, 12, 12), np.bool_)))  # wrong  # fault: constant_mask
        # right: mask = self.mask
        return self.attention(x, x, attention_mask=mask)


def build_constant_mask():
    return with_sgd(keras.Sequential([Attention()]))


class Far(keras.Model):
    """A device that this machine does not have: TensorFlow takes another one, and says nothing."""

    def __init__(self, device):
        super().__init__()
        self.device = device
        self.dense = layers.Dense(16)

    def call(self, x):
        with tf.device(self.device):
            return self.dense(x)  # fault: soft_placement


def build_soft_placement(device="/GPU:4"):
    tf.config.set_soft_device_placement(True)
    model = Far(device)
    model.build((None, 16))
    return with_sgd(model)


def build_soft_placement_right():
    return build_soft_placement("/GPU:0")
