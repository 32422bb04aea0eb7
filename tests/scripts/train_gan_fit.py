"""The same by a train_step with two optimizers."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

NOISE, SIZE = 8, 12


class GAN(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.critic = keras.Sequential([keras.Input((SIZE,)), layers.Dense(16, activation="elu"), layers.Dense(1)])
        self.generator = keras.Sequential(
            [keras.Input((NOISE,)), layers.Dense(16, activation="relu"), layers.Dense(SIZE, activation="tanh")]
        )
        self.seed = keras.random.SeedGenerator(1)

    def compile(self, of_critic: keras.Optimizer, of_generator: keras.Optimizer, criterion: keras.Loss) -> None:
        super().compile()
        self.of_critic, self.of_generator, self.criterion = of_critic, of_generator, criterion

    def train_step(self, real: tf.Tensor) -> dict[str, tf.Tensor]:
        count = ops.shape(real)[0]
        noise = keras.random.normal((count, NOISE), seed=self.seed)
        with tf.GradientTape() as tape:
            loss = self.criterion(ops.ones((count, 1)), self.critic(real, training=True))
            fake = tf.stop_gradient(self.generator(noise, training=True))
            loss += self.criterion(ops.zeros((count, 1)), self.critic(fake, training=True))
        weights = self.critic.trainable_weights
        self.of_critic.apply(tape.gradient(loss, weights), weights)
        with tf.GradientTape() as tape:
            fake = self.generator(noise, training=True)
            against = self.criterion(ops.ones((count, 1)), self.critic(fake, training=True))
        weights = self.generator.trainable_weights
        self.of_generator.apply(tape.gradient(against, weights), weights)
        return {"critic": loss, "generator": against}


gan = GAN()
gan.compile(keras.optimizers.SGD(0.1), keras.optimizers.SGD(0.2), keras.losses.BinaryCrossentropy(from_logits=True))
gan.fit(np.random.default_rng(0).uniform(-1, 1, (64, SIZE)), batch_size=16, epochs=2)
