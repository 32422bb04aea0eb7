"""A loss of predicted classes, which have no gradients."""

import keras
import tensorflow as tf


def build():
    model = keras.Sequential([keras.Input((16,)), keras.layers.Dense(4)])
    model.optimizer = keras.optimizers.SGD(0.1)
    return model


def step(model, inputs):
    # right: """With an accuracy beside the loss."""
    y = inputs["y"]
    with tf.GradientTape() as tape:
        scores = model(inputs["x"], training=True)
        predicted = tf.cast(tf.argmax(scores, 1), tf.float32)  # wrong
        loss = tf.reduce_mean(tf.square(predicted - tf.cast(y, tf.float32)))  # wrong  # fault
        # right: model.accuracy = tf.reduce_mean(tf.cast(tf.argmax(scores, 1) == y, tf.float32))
        # right: loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, scores))
    gradients = tape.gradient(loss, model.trainable_variables)
    model.optimizer.apply(gradients, model.trainable_variables)
