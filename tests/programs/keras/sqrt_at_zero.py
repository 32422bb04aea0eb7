"""The distance of a point to itself: its value is finite, its derivative is not."""

import keras
import tensorflow as tf


class Distance(keras.Model):
    def __init__(self):
        super().__init__()
        self.out = keras.layers.Dense(8, use_bias=False)

    def call(self, x):
        points = self.out(x)
        squares = tf.reduce_sum(tf.square(points - points[:1]), -1)
        return tf.sqrt(squares)  # fault


class DistanceRight(Distance):
    def call(self, x):
        points = self.out(x)
        squares = tf.reduce_sum(tf.square(points - points[:1]), -1)
        return tf.sqrt(squares + 1e-6)


def build():
    model = Distance()  # wrong
    # right: model = DistanceRight()
    model.compile(keras.optimizers.SGD(0.01))
    return model


def step(model, inputs):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(model(inputs["x"]))
    gradients = tape.gradient(loss, model.trainable_variables)
    model.optimizer.apply(gradients, model.trainable_variables)
