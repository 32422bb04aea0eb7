"""What several programs have alike."""

import keras
import tensorflow as tf


def build():
    return with_sgd(mlp())


def step(model, inputs):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(inputs["x"], training=True)))
    update(model, tape, loss)


def train(model, inputs):
    with tf.GradientTape() as tape:
        loss = keras.losses.MeanSquaredError()(inputs["y"], model(inputs["x"], training=True))
    update(model, tape, loss)
    return loss


def update(model, tape, loss):
    gradients = tape.gradient(loss, model.trainable_variables)
    model.optimizer.apply(gradients, model.trainable_variables)


def mlp(last=None):
    layers = [keras.layers.Dense(32, activation="relu"), keras.layers.Dense(4, activation=last)]
    return keras.Sequential([keras.Input((16,)), *layers])


def linear():
    model = keras.Sequential([keras.Input((16,)), keras.layers.Dense(4)])
    model.optimizer = keras.optimizers.SGD(0.1)
    return model


def with_sgd(model, rate=0.1):
    model.compile(keras.optimizers.SGD(rate))
    return model


def compiled(model):
    model.optimizer = keras.optimizers.Adam(1e-3)
    return model
