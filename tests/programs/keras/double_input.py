"""A batch that is float64 on its way to a float32 model."""

import keras
import tensorflow as tf


def build():
    model = keras.Sequential([keras.layers.Dense(32, activation="relu"), keras.layers.Dense(4)])
    model.compile(keras.optimizers.SGD(0.1))
    return model


def train(model, x):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(x, training=True)))
    gradients = tape.gradient(loss, model.trainable_variables)
    model.optimizer.apply(gradients, model.trainable_variables)


def step(model, inputs):
    x = tf.cast(inputs["x"], tf.float64)  # wrong  # fault
    train(model, x)  # wrong
    # right: train(model, inputs["x"])
