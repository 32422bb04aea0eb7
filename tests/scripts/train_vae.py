"""The same by fit, of a model without a call."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops


class Sampling(layers.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.seed = keras.random.SeedGenerator(1)

    def call(self, inputs: list[tf.Tensor]) -> tf.Tensor:
        mean, deviation = inputs
        return mean + ops.exp(0.5 * deviation) * keras.random.normal(ops.shape(mean), seed=self.seed)


class VAE(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        x = keras.Input((50,))
        hidden = layers.Dense(16, activation="relu")(x)
        mean, deviation = layers.Dense(3)(hidden), layers.Dense(3)(hidden)
        self.encoder = keras.Model(x, [mean, deviation, Sampling()([mean, deviation])])
        self.decoder = keras.Sequential([keras.Input((3,)), layers.Dense(16, activation="relu"), layers.Dense(50)])

    def train_step(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        with tf.GradientTape() as tape:
            mean, deviation, sample = self.encoder(x)
            loss = ops.mean(ops.sum((self.decoder(sample) - x) ** 2, axis=1))
            loss -= 0.5 * ops.mean(ops.sum(1 + deviation - mean**2 - ops.exp(deviation), axis=1))
        self.optimizer.apply(tape.gradient(loss, self.trainable_weights), self.trainable_weights)
        return {"loss": loss}


model = VAE()
model.compile(keras.optimizers.SGD(0.01))
model.fit(np.random.default_rng(0).normal(size=(96, 50)), batch_size=24, epochs=1)
