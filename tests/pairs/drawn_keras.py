"""The same."""

from typing import Any

import keras
import tensorflow as tf
from keras import layers, ops


class Drawn(keras.Model):
    def __init__(self, keep: float = 0.75, seed: int | None = None, draw: str = "normal") -> None:
        super().__init__()
        self.noise = layers.GaussianNoise(0.3)
        self.conv = layers.Conv2D(8, 3, padding="same", activation="relu")
        self.drop_path = layers.Dropout(1 - keep, noise_shape=(None, 1, 1, 1))
        self.mean, self.deviation = layers.Dense(4), layers.Dense(4)
        self.embedding = layers.Embedding(5, 4)
        self.head = layers.Dense(6)
        self.seed: Any = keras.random.SeedGenerator(3) if seed is None else seed
        self.draw = {"normal": keras.random.normal, "uniform": keras.random.uniform}[draw]

    def call(self, x: tf.Tensor, training: bool | None = None) -> tf.Tensor:
        y = self.drop_path(self.conv(self.noise(x, training=training)), training=training)
        y = ops.mean(y, (1, 2))
        y = 0.75 * y + 0.25 * keras.random.shuffle(y)
        size = ops.shape(y)[0]
        z = self.mean(y) + ops.exp(self.deviation(y)) * self.draw((size, 4), seed=self.seed)
        z = z * tf.random.uniform((size, 1), 0.5, 2.0, dtype=z.dtype)
        z = z * keras.random.beta((size, 1), 0.4, 2.0)
        z = z + tf.random.gamma((size, 4), 2.0, 4.0, dtype=z.dtype)
        return self.head(z + self.embedding(keras.random.randint((size,), 0, 5)))
