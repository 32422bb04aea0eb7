"""The same by a loop of a tf.function with two tapes, whose steps take batches of a dataset."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

NOISE, SIZE = 8, 12

generator = keras.Sequential(
    [keras.Input((NOISE,)), layers.Dense(16, activation="relu"), layers.Dense(SIZE, activation="tanh")]
)
critic = keras.Sequential([keras.Input((SIZE,)), layers.Dense(16, activation="elu"), layers.Dense(1)])
of_generator, of_critic = keras.optimizers.SGD(0.2), keras.optimizers.SGD(0.1)
criterion = keras.losses.BinaryCrossentropy(from_logits=True)
data = np.random.default_rng(0).uniform(-1, 1, (64, SIZE)).astype("float32")
dataset = tf.data.Dataset.from_tensor_slices(data).shuffle(64).batch(16)


@tf.function
def train_step(real):
    noise = tf.random.normal([tf.shape(real)[0], NOISE])
    with tf.GradientTape() as of_fake:
        fake = generator(noise, training=True)
        with tf.GradientTape() as tape:
            judged, judged_fake = critic(real, training=True), critic(tf.stop_gradient(fake), training=True)
            loss = criterion(tf.ones_like(judged), judged) + criterion(tf.zeros_like(judged_fake), judged_fake)
        gradients = tape.gradient(loss, critic.trainable_variables)
        of_critic.apply_gradients(zip(gradients, critic.trainable_variables, strict=True))
        judged = critic(fake, training=True)
        against = criterion(tf.ones_like(judged), judged)
    gradients = of_fake.gradient(against, generator.trainable_variables)
    of_generator.apply_gradients(zip(gradients, generator.trainable_variables, strict=True))


for _ in range(2):
    for batch in dataset:
        train_step(batch)
    print(float(tf.reduce_mean(generator(tf.random.normal((4, NOISE)), training=False))))
