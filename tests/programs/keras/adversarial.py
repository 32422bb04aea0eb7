"""A generator and its critic in a train_step of their own, with two optimizers."""

import keras
import tensorflow as tf
from keras import layers


class Adversaries(keras.Model):
    def __init__(self):
        super().__init__()
        self.generator = keras.Sequential([layers.Dense(32, activation="leaky_relu"), layers.Dense(16)])
        self.critic = keras.Sequential([layers.Dense(32, activation="leaky_relu"), layers.Dense(1)])
        self.of_generator = keras.optimizers.Adam(2e-4)
        self.of_critic = keras.optimizers.Adam(2e-4)
        self.judge = keras.losses.BinaryCrossentropy(from_logits=True)

    def call(self, noise):
        return self.generator(noise)

    def train_step(self, data):
        real = data[0] if isinstance(data, tuple) else data
        noise = tf.random.normal((tf.shape(real)[0], 8))
        ones, zeros = tf.ones((tf.shape(real)[0], 1)), tf.zeros((tf.shape(real)[0], 1))
        with tf.GradientTape() as tape:
            of_critic = self.judge(ones, self.critic(real)) + self.judge(zeros, self.critic(self(noise)))
        variables = self.critic.trainable_variables
        self.of_critic.apply(tape.gradient(of_critic, variables), variables)
        with tf.GradientTape() as tape:
            of_generator = self.judge(ones, self.critic(self(noise)))
        variables = self.generator.trainable_variables
        self.of_generator.apply(tape.gradient(of_generator, variables), variables)
        return {"critic": of_critic, "generator": of_generator}


def build_right():
    model = Adversaries()
    model.critic.build((None, 16))
    model.generator.build((None, 8))
    model.compile()
    return model


def step_right(model, inputs):
    model.train_on_batch(inputs["x"])
