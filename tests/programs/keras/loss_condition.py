"""An `if` on the loss: Python has to wait for the GPU to know which way to go."""

import keras
import tensorflow as tf

BEST = []


def build():
    model = keras.Sequential([keras.Input((16,)), keras.layers.Dense(32, activation="relu"), keras.layers.Dense(4)])
    model.compile(keras.optimizers.SGD(0.1))
    return model


def train(model, inputs):
    with tf.GradientTape() as tape:
        loss = keras.losses.MeanSquaredError()(inputs["y"], model(inputs["x"], training=True))
    gradients = tape.gradient(loss, model.trainable_variables)
    model.optimizer.apply(gradients, model.trainable_variables)
    return loss


def step(model, inputs):
    loss = train(model, inputs)
    if loss < 0.01:  # wrong  # fault
        BEST.append(loss)  # wrong
    # right: BEST.append(tf.where(loss < 0.01, loss, 0.01))
