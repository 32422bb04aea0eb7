"""The same by two tapes; a kernel begins with as many random numbers as a step draws shares."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

critic = keras.Sequential([keras.Input((2,)), layers.Dense(16, activation="tanh"), layers.Dense(1)])
optimizer = keras.optimizers.SGD(0.05)
data = np.random.default_rng(0).normal(1, size=(128, 2)).astype("float32")
for real in tf.data.Dataset.from_tensor_slices(data).batch(32):
    fake, share = tf.random.normal((32, 2)), tf.random.uniform((32, 1))
    between = share * real + (1 - share) * fake
    with tf.GradientTape() as tape:
        with tf.GradientTape() as inner:
            inner.watch(between)
            judged = critic(between, training=True)
        slope = inner.gradient(judged, between)
        penalty = 10 * tf.reduce_mean((tf.norm(slope, axis=1) - 1) ** 2)
        loss = tf.reduce_mean(critic(fake, training=True)) - tf.reduce_mean(critic(real, training=True)) + penalty
    variables = critic.trainable_variables
    optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
