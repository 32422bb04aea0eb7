"""The same by a train_step of a model that holds all three."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers


def encoder():
    return keras.Sequential([keras.Input((6,)), layers.Dense(8, activation="tanh"), layers.Dense(5)])


def distance(prediction, target):
    return 2 - 2 * tf.reduce_sum(tf.math.l2_normalize(prediction, 1) * tf.math.l2_normalize(target, 1), axis=1)


class Views(keras.Model):
    def __init__(self):
        super().__init__()
        self.online, self.target = encoder(), encoder()
        self.target.set_weights(self.online.get_weights())
        self.predictor = keras.Sequential([keras.Input((5,)), layers.Dense(5)])

    def train_step(self, data):
        one, other = data
        targets = self.target(one, training=True), self.target(other, training=True)
        with tf.GradientTape() as tape:
            predictions = self.predictor(self.online(one)), self.predictor(self.online(other))
            loss = tf.reduce_mean(distance(predictions[0], targets[1]) + distance(predictions[1], targets[0]))
        variables = self.online.trainable_variables + self.predictor.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        for follower, leader in zip(self.target.trainable_variables, self.online.trainable_variables, strict=True):
            follower.assign(0.75 * follower + 0.25 * leader)
        return {"loss": loss}


model = Views()
model.compile(keras.optimizers.SGD(0.1, momentum=0.9))
views = [np.random.default_rng(seed).normal(size=(48, 6)).astype("float32") for seed in (0, 1)]
model.fit(tf.data.Dataset.from_tensor_slices(tuple(views)).batch(12))
