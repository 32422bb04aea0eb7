"""Samples and labels are shuffled, each in an order of its own."""

import keras
import tensorflow as tf


def build():
    model = keras.Sequential([keras.Input((16,)), keras.layers.Dense(4)])
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def step(model, inputs):
    x = tf.random.shuffle(inputs["x"])
    y = tf.random.shuffle(inputs["y"])  # fault
    model.train_on_batch(x, y)


def step_right(model, inputs):
    """In one order; and by fit, which shuffles both alike."""
    order = tf.random.shuffle(tf.range(8))
    model.train_on_batch(tf.gather(inputs["x"], order), tf.gather(inputs["y"], order))
    model.fit(inputs["x"], inputs["y"], shuffle=True, verbose=0)
