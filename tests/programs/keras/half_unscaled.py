"""Layers that compute in float16, and no loss scaling: small gradients become zero."""

import keras
import tensorflow as tf


class Net(keras.Model):
    def __init__(self):
        super().__init__()
        self.hidden = keras.layers.Dense(32, activation="relu", dtype="mixed_float16")  # fault
        self.out = keras.layers.Dense(4, dtype="float32")

    def call(self, x):
        return self.out(self.hidden(x))


def build():
    model = Net()
    model.optimizer = keras.optimizers.Adam(0.001)  # wrong
    # right: model.optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(0.001))
    return model


def step(model, inputs):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(inputs["x"])))
        scaled = model.optimizer.scale_loss(loss)
    gradients = tape.gradient(scaled, model.trainable_variables)
    model.optimizer.apply(gradients, model.trainable_variables)
