"""The same by a train_step, which calls the network within the model."""

import math
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

CLASSES, SIZE = 5, 12


class Network(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.of_class, self.of_time = layers.Embedding(CLASSES, 16), layers.Dense(16)
        self.first, self.second = layers.Dense(16), layers.Dense(SIZE)

    def call(self, inputs: list[tf.Tensor]) -> tf.Tensor:
        x, time, labels = inputs
        return self.second(ops.relu(self.first(x) + self.of_time(time) + self.of_class(labels)))


class Diffusion(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.network = Network()

    def train_step(self, data: Any) -> dict[str, tf.Tensor]:
        x, labels = data
        time = keras.random.uniform((ops.shape(x)[0], 1))
        noise = keras.random.normal(ops.shape(x))
        share = ops.cos(time * math.pi / 2) ** 2
        noisy = ops.sqrt(share) * x + ops.sqrt(1 - share) * noise
        with tf.GradientTape() as tape:
            loss = self.compute_loss(y=noise, y_pred=self.network([noisy, time, labels], training=True))
        gradients = tape.gradient(loss, self.network.trainable_weights)
        self.optimizer.apply(gradients, self.network.trainable_weights)
        return {"loss": loss}


model = Diffusion()
model.compile(keras.optimizers.SGD(0.1), loss="mse")
rng = np.random.default_rng(0)
model.fit(rng.normal(size=(64, SIZE)), rng.integers(0, CLASSES, 64), batch_size=16)
