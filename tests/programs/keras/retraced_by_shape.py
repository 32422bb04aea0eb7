"""Batches of other lengths, each of which traces the tf.function anew."""

import itertools

import keras
import tensorflow as tf

LENGTHS = itertools.cycle([6, 5, 8, 7])


def trainer(model, **options):
    @tf.function(**options)
    def train(ids):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(ids, training=True)))
        gradients = tape.gradient(loss, model.trainable_variables)
        model.optimizer.apply(gradients, model.trainable_variables)
        return loss

    return train


def build(**options):
    model = keras.Sequential([keras.layers.Embedding(50, 16), keras.layers.Dense(4)])
    model.compile(keras.optimizers.SGD(0.1))
    model.train = trainer(model, **options)
    return model


def build_right():
    return build(input_signature=[tf.TensorSpec([None, None], tf.int64)])


def step(model, inputs):
    model.train(inputs["ids"][:, : next(LENGTHS)])  # fault
