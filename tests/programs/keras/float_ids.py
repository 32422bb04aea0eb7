"""Ids of words that are made float32 before the embedding looks them up."""

import keras
import tensorflow as tf


def build():
    layers = [keras.layers.Embedding(1000, 16), keras.layers.GlobalAveragePooling1D(), keras.layers.Dense(4)]
    model = keras.Sequential(layers)
    model.compile(keras.optimizers.Adam(0.001))
    return model


def train(model, src):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(src, training=True)))
    gradients = tape.gradient(loss, model.trainable_variables)
    model.optimizer.apply(gradients, model.trainable_variables)


def step(model, inputs):
    src = tf.cast(inputs["src"], tf.float32)  # wrong  # fault
    train(model, src)  # wrong
    # right: train(model, inputs["src"])
