"""The same."""

import keras
import tensorflow as tf
from keras import layers, ops


class Policy(keras.Model):
    def __init__(self, rate: float = 0.0625, stops: bool = True) -> None:
        super().__init__()
        self.actor = keras.Sequential([layers.Dense(12, activation="tanh"), layers.Dense(4)])
        self.critic = keras.Sequential([layers.Dense(12, activation="tanh"), layers.Dense(1)])
        self.stops = stops
        self.optimizers = [keras.optimizers.SGD(rate), keras.optimizers.SGD(0.25, momentum=0.5)]

    def call(self, state: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return self.actor(state), ops.squeeze(self.critic(state), -1)


def step(model: Policy, _: keras.optimizers.Optimizer, batch: dict[str, tf.Tensor]) -> tf.Tensor:
    parts = [model.critic, model.actor]
    with tf.GradientTape(persistent=True) as tape:
        logits, value = model(batch["state"])
        advantage = batch["target.reward"] - value
        chosen = tf.gather(ops.log_softmax(logits), batch["target.action"], batch_dims=1)
        gain = chosen * (ops.stop_gradient(advantage) if model.stops else advantage)
        loss = ops.mean(advantage**2) - ops.mean(gain)
    for part, optimizer in zip(parts, model.optimizers, strict=True):
        optimizer.apply(tape.gradient(loss, part.trainable_variables), part.trainable_variables)
    return loss
