"""Networks that others copy and no gradient reaches: a clone, one made anew and set later, averages kept in a list."""

import itertools

import keras
import tensorflow as tf
from keras import layers


def network():
    return keras.Sequential(
        [keras.Input((16,)), layers.Dense(32, "relu"), layers.LayerNormalization(), layers.Dense(4)]
    )


class Learner(keras.Model):
    def __init__(self):
        super().__init__()
        self.online = network()
        self.target = keras.models.clone_model(self.online)
        self.target.set_weights(self.online.get_weights())
        self.copies = {"late": network()}
        self.averages = [keras.Variable(variable) for variable in self.online.trainable_variables]
        self.steps = itertools.count(1)

    def call(self, x):
        return self.online(x)

    def follow(self):
        for slow, fast in zip(self.target.variables, self.online.variables, strict=True):
            slow.assign(0.995 * slow + 0.005 * fast)
        for slow, fast in zip(self.averages, self.online.trainable_variables, strict=True):
            slow.assign(0.999 * slow + 0.001 * fast)
        if next(self.steps) % 1000 == 0:
            self.copies["late"].set_weights(self.online.get_weights())


def build_right():
    model = Learner()
    model.optimizer = keras.optimizers.Adam(1e-3)
    return model


def step_right(model, inputs):
    x, later = inputs["x"], inputs["x"] + 1.0
    late = tf.reduce_max(model.copies["late"](later, training=False), -1)
    with tf.GradientTape() as tape:
        aim = tf.stop_gradient(tf.minimum(late, tf.reduce_max(model.target(later, training=False), -1)))
        best = tf.reduce_max(model(x, training=True), -1)
        loss = tf.reduce_mean(tf.square(1.0 + 0.9 * aim - best))
    variables = model.online.trainable_variables
    model.optimizer.apply(tape.gradient(loss, variables), variables)
    model.follow()
