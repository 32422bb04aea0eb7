"""A body that is frozen: on purpose, perhaps."""

import keras
import tensorflow as tf


class Net(keras.Model):
    def __init__(self):
        super().__init__()
        self.body = keras.layers.Dense(8, activation="relu")
        self.head = keras.layers.Dense(4)

    def call(self, x):
        return self.head(self.body(x))


def build():
    model = build_right()
    model.body.trainable = False
    return model


def build_right():
    model = Net()
    model.compile(keras.optimizers.SGD(0.1))
    return model


def step(model, inputs):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(inputs["x"], training=True)))
    gradients = tape.gradient(loss, model.trainable_variables)
    model.optimizer.apply(gradients, model.trainable_variables)
