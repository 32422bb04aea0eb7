"""The port of train_average.py: a loop over a dataset in another order."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops


class Net(keras.Model):
    def __init__(self):
        super().__init__()
        self.online, self.target = (
            keras.Sequential([keras.Input((6,)), layers.Dense(16, activation="tanh"), layers.Dense(4)]) for _ in "ab"
        )
        self.target.set_weights(self.online.get_weights())
        self.target.trainable = False

    def call(self, x):
        return self.online(x), ops.stop_gradient(self.target(ops.flip(x, 1)))


model = Net()
optimizer = keras.optimizers.SGD(0.1)
draws = np.random.default_rng(0)
arrays = [draws.normal(size=(64, n)).astype("float32") for n in (6, 4)]
for x, y in tf.data.Dataset.from_tensor_slices(tuple(arrays)).batch(16):
    with tf.GradientTape() as tape:
        online, target = model(x, training=True)
        mask = tf.cast(x[:, :1] > 0, online.dtype)
        loss = tf.reduce_mean(tf.square(ops.normalize(online) - ops.normalize(target)))
        loss += tf.reduce_mean(mask * tf.square(online - y))
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
    for average, weight in zip(model.target.weights, model.online.weights, strict=True):
        average.assign(0.9 * average + 0.1 * weight)
