"""Two layers on two devices; the second is called where the program stands, not where it lives."""

import keras
import tensorflow as tf

from tests.programs.keras.usual import step as step


class Net(keras.Model):
    def __init__(self):
        super().__init__()
        with tf.device("/GPU:0"):
            self.first = keras.layers.Dense(16, activation="tanh")
            self.first.build((None, 16))
        with tf.device("/GPU:1"):
            self.second = keras.layers.Dense(16)
            self.second.build((None, 16))

    def call(self, x):
        return self.second(self.first(x))  # fault


def build():
    model = Net()
    model.compile(keras.optimizers.SGD(0.1))
    return model


def step_right(model, inputs):
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
