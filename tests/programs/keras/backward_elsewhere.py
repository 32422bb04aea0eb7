"""The forward pass is placed layer by layer; the backward pass is left on the first device."""

import keras
import tensorflow as tf

from tests.programs.keras.round_robin import step_right as step_right


class Net(keras.Model):
    def __init__(self):
        super().__init__()
        with tf.device("/GPU:0"):
            self.first = keras.layers.Dense(16, activation="tanh")
            self.first.build((None, 16))
        with tf.device("/GPU:1"):
            self.second = keras.layers.Dense(16, activation="tanh")
            self.second.build((None, 16))


def build():
    model = Net()
    model.compile(keras.optimizers.SGD(0.1))
    return model


def step(model, inputs):
    with tf.GradientTape() as tape:
        with tf.device("/GPU:0"):
            hidden = model.first(tf.identity(inputs["x"]))
        with tf.device("/GPU:1"):
            loss = tf.reduce_mean(tf.square(model.second(tf.identity(hidden))))
    gradients = tape.gradient(loss, model.trainable_variables)  # fault
    model.optimizer.apply(gradients, model.trainable_variables)
