"""Predictions of shape (N, 1) against targets of shape (N,): the loss is of all pairs."""

import keras
import tensorflow as tf


def build():
    model = keras.Sequential([keras.layers.Dense(32, activation="relu"), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.1))
    return model


def step(model, inputs):
    with tf.GradientTape() as tape:
        out = model(inputs["x"], training=True)  # wrong
        # right: out = tf.squeeze(model(inputs["x"], training=True), -1)
        loss = tf.reduce_mean(tf.square(out - inputs["y"]))  # fault
    gradients = tape.gradient(loss, model.trainable_variables)
    model.optimizer.apply(gradients, model.trainable_variables)
