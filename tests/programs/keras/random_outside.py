"""Random numbers in their right places: NumPy's given to a tf.function and in a py_function, TensorFlow's within it."""

import random

import keras
import numpy as np
import tensorflow as tf
from keras import layers

RNG = np.random.default_rng(1)


class Features(layers.Layer):
    def build(self, shape):
        self.directions = tf.constant(np.random.normal(size=(shape[-1], 8)), tf.float32)
        self.phases = None

    def call(self, x):
        if self.phases is None:
            self.phases = [random.random() for _ in range(8)]
        return tf.cos(x @ self.directions + self.phases)


def build_right():
    model = keras.Sequential([Features(), layers.Dropout(0.1), layers.GaussianNoise(0.1), layers.Dense(4)])
    model.optimizer = keras.optimizers.Adam(1e-3)
    model(tf.zeros((1, 16)))
    model.optimizer.build(model.trainable_variables)
    model.train = trainer(model)
    return model


def trainer(model):
    @tf.function
    def train(x, y, noise, keep):
        x = x + noise + tf.random.normal(tf.shape(x), stddev=0.1)
        x = x * keep + keras.random.normal(x.shape, stddev=0.1)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x, training=True) - y))
        gradients = tape.gradient(loss, model.trainable_variables)
        model.optimizer.apply(gradients, model.trainable_variables)
        return loss

    return train


def step_right(model, inputs):
    noise = RNG.normal(0.0, 0.1, inputs["x"].shape).astype("float32")
    noise = tf.constant(noise) + tf.constant(np.random.normal(0.0, 0.1, noise.shape), tf.float32)
    model.train(inputs["x"], inputs["y"], noise, tf.constant(random.random()))
