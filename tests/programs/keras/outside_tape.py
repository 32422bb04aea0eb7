"""The features are computed before the tape begins, though they shall be trained too."""

import keras
import tensorflow as tf


class Tuned(keras.Model):
    def __init__(self):
        super().__init__()
        self.features = keras.layers.Dense(8, activation="tanh")
        self.head = keras.layers.Dense(4)

    def call(self, x):
        return self.head(self.features(x))


def build():
    model = Tuned()
    model.compile(keras.optimizers.SGD(0.1))
    return model


def update(model, tape, loss):
    gradients = tape.gradient(loss, model.trainable_variables)
    pairs = [pair for pair in zip(gradients, model.trainable_variables, strict=True) if pair[0] is not None]
    model.optimizer.apply_gradients(pairs)


def step(model, inputs):
    hidden = model.features(inputs["x"])  # wrong  # fault
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model.head(hidden)))  # wrong
        # right: loss = tf.reduce_mean(tf.square(model(inputs["x"])))
    update(model, tape, loss)
