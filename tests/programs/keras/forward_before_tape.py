"""A forward pass that was over before the tape began."""

import keras
import tensorflow as tf


def build():
    model = keras.Sequential([keras.Input((16,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(4)])
    model.optimizer = keras.optimizers.SGD(0.1)
    return model


def update(model, tape, loss):
    gradients = tape.gradient(loss, model.trainable_variables)
    model.optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))


def step(model, inputs):
    outputs = model(inputs["x"], training=True)  # wrong  # fault
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(outputs))  # wrong
        # right: loss = tf.reduce_mean(tf.square(model(inputs["x"], training=True)))
    update(model, tape, loss)
