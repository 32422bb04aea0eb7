"""The model is called for inference, and trained."""

import keras
import tensorflow as tf


def build():
    layers = [keras.layers.Dense(32), keras.layers.BatchNormalization(), keras.layers.ReLU()]
    model = keras.Sequential([*layers, keras.layers.Dropout(0.1), keras.layers.Dense(4)])
    model.compile(keras.optimizers.SGD(0.1))
    return model


def train(model, inputs, training):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(inputs["x"], training=training)))
    gradients = tape.gradient(loss, model.trainable_variables)
    model.optimizer.apply(gradients, model.trainable_variables)


def step(model, inputs):
    train(model, inputs, training=False)  # wrong
    # right: train(model, inputs, training=True)
