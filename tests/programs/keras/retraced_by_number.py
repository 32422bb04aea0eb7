"""A tf.function that is given a Python number which differs in each step: it is traced anew each time."""

import itertools

import keras
import tensorflow as tf

NUMBERS = itertools.count(1)


class Trainer:
    def __init__(self, model):
        self.model = model

    @tf.function
    def train(self, x, rate):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(self.model(x, training=True))) * rate
        gradients = tape.gradient(loss, self.model.trainable_variables)
        self.model.optimizer.apply(gradients, self.model.trainable_variables)
        return loss


def build():
    model = keras.Sequential([keras.Input((16,)), keras.layers.Dense(4)])
    model.compile(keras.optimizers.SGD(0.1))
    model.trainer = Trainer(model)
    return model


def step(model, inputs):
    rate = 1 / next(NUMBERS)  # wrong
    # right: rate = tf.constant(1 / next(NUMBERS))
    model.trainer.train(inputs["x"], rate)  # fault
