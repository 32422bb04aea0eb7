"""A tf.function that is made in the step, and so made and traced anew each time."""

import keras
import tensorflow as tf


def build():
    model = keras.Sequential([keras.Input((16,)), keras.layers.Dense(4)])
    model.compile(keras.optimizers.SGD(0.1))
    model.optimizer.build(model.trainable_variables)
    model.train = trainer(model)
    return model


def trainer(model):
    @tf.function
    def train(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x, training=True)))
        gradients = tape.gradient(loss, model.trainable_variables)
        model.optimizer.apply(gradients, model.trainable_variables)
        return loss

    return train


def step(model, inputs):
    trainer(model)(inputs["x"])  # wrong  # fault
    # right: model.train(inputs["x"])
