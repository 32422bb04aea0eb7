"""Every block sends the mask of the batch to the GPU again."""

import keras
import tensorflow as tf


class Block(keras.layers.Layer):
    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(16)

    def call(self, x, mask):
        with tf.device("/GPU:0"):
            mask = tf.identity(mask)  # fault
        return x + self.dense(x) * mask


class Net(keras.Model):
    def __init__(self):
        super().__init__()
        self.blocks = [Block() for _ in range(3)]

    def call(self, x, mask):
        for block in self.blocks:
            x = block(x, mask)
        return x


def build():
    model = Net()
    model.compile(keras.optimizers.SGD(0.1))
    return model


def step(model, inputs):
    with tf.device("/GPU:0"):
        x = tf.identity(inputs["x"])
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(x, inputs["mask"])))
    gradients = tape.gradient(loss, model.trainable_variables)
    model.optimizer.apply(gradients, model.trainable_variables)


def step_right(model, inputs):
    with tf.device("/GPU:0"):
        step(model, {name: tf.identity(tensor) for name, tensor in inputs.items()})
