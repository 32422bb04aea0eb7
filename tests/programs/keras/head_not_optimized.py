"""The optimizer was built with the body's variables only, and is given theirs only."""

import keras
import tensorflow as tf

from tests.programs.keras.frozen_body import Net


def build():
    model = Net()
    model.compile(keras.optimizers.SGD(0.1))
    return model


def train(model, inputs, trained):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(inputs["x"])))
    gradients = tape.gradient(loss, model.trainable_variables)
    model.optimizer.apply_gradients(list(zip(gradients, model.trainable_variables, strict=True))[:trained])


def step(model, inputs):
    train(model, inputs, trained=2)  # wrong
    # right: train(model, inputs, trained=4)
