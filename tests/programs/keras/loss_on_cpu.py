"""The loss is taken to the CPU in every step, which waits for the GPU."""

import keras
import tensorflow as tf

HISTORY = []


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
    loss = train(model, inputs)  # wrong
    HISTORY.append(loss.cpu())  # wrong  # fault
    # right: HISTORY.append(train(model, inputs))
