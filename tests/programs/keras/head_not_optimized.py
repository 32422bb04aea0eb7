"""The optimizer was built with the body's variables only, and is given theirs only."""

import keras
import tensorflow as tf


class Net(keras.Model):
    def __init__(self):
        super().__init__()
        self.body = keras.layers.Dense(8, activation="relu")
        self.head = keras.layers.Dense(4)

    def call(self, x):
        return self.head(self.body(x))


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
