"""A layer whose weights are bfloat16, among layers of float32."""

import keras
import tensorflow as tf


def build(dtype="bfloat16"):
    model = keras.Sequential()
    model.add(keras.layers.Dense(32, activation="relu", dtype=dtype))  # fault
    model.add(keras.layers.Dense(4))
    model.compile(keras.optimizers.SGD(0.1))
    return model


def build_right():
    return build(dtype="mixed_bfloat16")


def step(model, inputs):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(inputs["x"], training=True)))
    gradients = tape.gradient(loss, model.trainable_variables)
    model.optimizer.apply(gradients, model.trainable_variables)
