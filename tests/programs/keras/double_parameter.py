"""One layer in float64 among others in float32."""

import keras
import tensorflow as tf


def build(dtype="float64"):
    model = keras.Sequential()
    model.add(keras.layers.Dense(32, activation="relu"))
    model.add(keras.layers.Dense(4, dtype=dtype))  # fault
    model.compile(keras.optimizers.SGD(0.1))
    return model


def build_right():
    return build(dtype="float32")


def step(model, inputs):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(inputs["x"], training=True)))
    gradients = tape.gradient(loss, model.trainable_variables)
    model.optimizer.apply(gradients, model.trainable_variables)
