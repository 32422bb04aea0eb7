"""Gradients are computed, and no optimizer applies them."""

import keras
import tensorflow as tf


def build():
    model = keras.Sequential([keras.Input((16,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(4)])
    model.optimizer = keras.optimizers.Adam(1e-3)
    return model


def gradients_of(model, inputs):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(inputs["x"], training=True)))
    return tape.gradient(loss, model.trainable_variables)


def step(model, inputs):
    with tf.GradientTape() as tape:  # wrong
        loss = tf.reduce_mean(tf.square(model(inputs["x"], training=True)))  # wrong
    gradients = tape.gradient(loss, model.trainable_variables)  # wrong  # fault
    model.number = len(gradients)  # wrong
    # right: model.optimizer.apply(gradients_of(model, inputs), model.trainable_variables)
