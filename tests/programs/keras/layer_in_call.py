"""A layer that is made where it is called: it has new weights in each step, which nothing trains."""

import keras
import tensorflow as tf
from keras import layers

from tests.programs.keras.usual import compiled


class Net(keras.Model):
    def __init__(self):
        super().__init__()
        self.body = layers.Dense(32, activation="relu")

    def call(self, x, training=None):
        x = layers.Dropout(0.1)(self.body(x), training=training)
        return layers.Dense(4)(x)  # fault


class NetRight(keras.Model):
    def __init__(self):
        super().__init__()
        self.body = layers.Dense(32, activation="relu")
        self.head = None

    def call(self, x, training=None):
        x = layers.Dropout(0.1)(self.body(x), training=training)
        if self.head is None:
            self.head = layers.Dense(4)
        return self.head(x)


def build():
    return compiled(Net())  # wrong
    # right: return compiled(NetRight())


def step(model, inputs):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(inputs["x"], training=True) - inputs["y"]))
    gradients = tape.gradient(loss, model.trainable_variables)
    model.optimizer.apply(gradients, model.trainable_variables)
