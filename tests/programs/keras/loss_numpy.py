"""The loss of every step goes to a list as a NumPy number."""

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
    HISTORY.append(train(model, inputs).numpy())  # wrong  # fault
    # right: HISTORY.append(train(model, inputs))
