"""A vocabulary of 100 words, and ids up to 127."""

import keras
import tensorflow as tf


class Encoder(keras.Model):
    def __init__(self, words):
        super().__init__()
        self.table = keras.layers.Embedding(words, 16)
        self.out = keras.layers.Dense(4)

    def call(self, ids):
        hidden = self.table(ids)  # fault
        return tf.reduce_mean(self.out(hidden), 1)


def build(words=100):
    model = Encoder(words)
    model.compile(keras.optimizers.Adam(0.001))
    return model


def build_right():
    return build(words=128)


def step(model, inputs):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(inputs["ids"])))
    gradients = tape.gradient(loss, model.trainable_variables)
    model.optimizer.apply(gradients, model.trainable_variables)
