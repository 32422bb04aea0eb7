"""A model cut in two at the wrong layer: one device holds nine tenths of it."""

import keras
import tensorflow as tf


class Pipeline(keras.Model):
    def __init__(self, cut):
        super().__init__()
        layers = [keras.layers.Dense(64) for _ in range(10)]
        with tf.device("/GPU:0"):
            self.first = keras.Sequential(layers[:cut])
            self.first.build((None, 64))
        with tf.device("/GPU:1"):  # fault
            self.second = keras.Sequential(layers[cut:])
            self.second.build((None, 64))


def build(cut=1):
    model = Pipeline(cut)
    model.compile(keras.optimizers.SGD(0.01))
    return model


def build_right():
    return build(cut=5)


def step(model, inputs):
    """A tape of each stage's own: the backward pass runs where its tape is asked."""
    first, second = model.first.trainable_variables, model.second.trainable_variables
    with tf.device("/GPU:0"), tf.GradientTape() as tape0:
        sent = model.first(tf.identity(inputs["x"]))
    with tf.device("/GPU:1"):
        with tf.GradientTape() as tape1:
            received = tf.identity(sent)
            tape1.watch(received)
            loss = tf.reduce_mean(tf.square(model.second(received)))
        returned, *gradients1 = tape1.gradient(loss, [received, *second])
    with tf.device("/GPU:0"):
        gradients0 = tape0.gradient(sent, first, output_gradients=tf.identity(returned))
    model.optimizer.apply([*gradients0, *gradients1], [*first, *second])
