"""Attention by hand: where a mask leaves a query no key at all, the softmax is one of infinities alone, a NaN."""

import keras
import tensorflow as tf
from keras import layers

from tests.programs.keras.usual import compiled

FAR = tf.constant(float("-inf"))


class Attention(keras.Model):
    def __init__(self, hidden=FAR):
        super().__init__()
        self.query, self.key, self.value = layers.Dense(16), layers.Dense(16), layers.Dense(16)
        self.head = layers.Dense(5)
        self.hidden = hidden

    def call(self, x, keep):
        scores = tf.matmul(self.query(x), self.key(x), transpose_b=True) / 4.0
        scores = tf.where(keep[:, None, :] > 0, scores, self.hidden)
        weights = tf.nn.softmax(scores)  # fault
        return self.head(tf.reduce_mean(tf.matmul(weights, self.value(x)), 1))


def build():
    return compiled(Attention())  # wrong
    # right: return compiled(Attention(tf.constant(-1e9)))


def step(model, inputs):
    keep = tf.concat([tf.ones((7, 6)), tf.zeros((1, 6))], 0)
    with tf.GradientTape() as tape:
        logits = model(inputs["x"], keep, training=True)
        losses = keras.losses.sparse_categorical_crossentropy(inputs["y"], logits, from_logits=True)
        loss = tf.reduce_mean(losses)
    gradients = tape.gradient(loss, model.trainable_variables)
    model.optimizer.apply(gradients, model.trainable_variables)
