"""Layers that hang on an object Keras does not look into: never listed, never trained."""

import keras
import tensorflow as tf


class Blocks:
    def __init__(self):
        self.first = keras.layers.Dense(16, activation="relu")  # fault


class Net(keras.Model):
    def __init__(self):
        super().__init__()
        self.blocks = Blocks()
        self.head = keras.layers.Dense(4)

    def call(self, x):
        return self.head(self.blocks.first(x))


class NetRight(keras.Model):
    def __init__(self):
        super().__init__()
        self.first = keras.layers.Dense(16, activation="relu")
        self.head = keras.layers.Dense(4)

    def call(self, x):
        return self.head(self.first(x))


def compiled(model):
    model.compile(keras.optimizers.SGD(0.1))
    return model


def build():
    return compiled(Net())  # wrong
    # right: return compiled(NetRight())


def step(model, inputs):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(inputs["x"], training=True)))
    gradients = tape.gradient(loss, model.trainable_variables)
    model.optimizer.apply(gradients, model.trainable_variables)
