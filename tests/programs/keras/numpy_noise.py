"""Noise that NumPy draws in a tf.function: it is drawn when the function is traced, and stays the same ever after."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers


def trainer(model, noisy):
    @tf.function
    def train(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(noisy(x), training=True) - y))
        gradients = tape.gradient(loss, model.trainable_variables)
        model.optimizer.apply(gradients, model.trainable_variables)
        return loss

    return train


def noisy(x):
    noise = np.random.normal(0.0, 0.1, size=x.shape).astype("float32")  # fault
    return x + noise


def noisy_right(x):
    return x + tf.random.normal(x.shape, 0.0, 0.1)


def build(noisy=noisy):
    model = keras.Sequential([keras.Input((16,)), layers.Dense(32, "relu"), layers.Dense(4)])
    model.optimizer = keras.optimizers.Adam(1e-3)
    model.optimizer.build(model.trainable_variables)
    model.train = trainer(model, noisy)
    return model


def build_right():
    return build(noisy_right)


def step(model, inputs):
    model.train(inputs["x"], inputs["y"])
