"""Two encoders of one structure, one behind the other: the first is no target network, though its gradient is cut."""

import keras
import tensorflow as tf
from keras import layers


def encoder():
    return keras.Sequential([layers.Dense(32, "relu"), layers.Dense(16)])


class Net(keras.Model):
    def __init__(self):
        super().__init__()
        self.first, self.second = encoder(), encoder()

    def call(self, x):
        x = tf.stop_gradient(self.first(x))  # fault
        return self.second(x)


class NetRight(Net):
    def call(self, x):
        return self.second(self.first(x))


def compiled(model):
    model.optimizer = keras.optimizers.Adam(1e-3)
    return model


def build():
    return compiled(Net())  # wrong
    # right: return compiled(NetRight())


def step(model, inputs):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(inputs["x"], training=True)))
    gradients = tape.gradient(loss, model.trainable_variables)
    model.optimizer.apply(gradients, model.trainable_variables)
