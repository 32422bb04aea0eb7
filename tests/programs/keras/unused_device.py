"""A model on two of three devices."""

import keras
import tensorflow as tf

from tests.programs.keras.lopsided import step


class Pipeline(keras.Model):
    def __init__(self):
        super().__init__()
        with tf.device("/GPU:0"):
            self.first = keras.layers.Dense(16, activation="tanh")
            self.first.build((None, 16))
        with tf.device("/GPU:1"):
            self.second = keras.layers.Dense(16)
            self.second.build((None, 16))


def build():
    model = Pipeline()
    model.compile(keras.optimizers.SGD(0.1))
    return model


def step_right(model, inputs):
    step(model, inputs)
    with tf.device("/GPU:2"):
        model.norm = tf.sqrt(sum(tf.reduce_sum(tf.square(variable)) for variable in model.trainable_variables))
