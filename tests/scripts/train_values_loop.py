"""The same in a loop with a tape."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

rng = np.random.default_rng(0)
states, later = (rng.normal(size=(64, 6)).astype("float32") for _ in range(2))
actions = rng.integers(0, 4, 64)
rewards, weights = (rng.uniform(size=64).astype("float32") for _ in range(2))


def network() -> keras.Model:
    return keras.Sequential([keras.Input((6,)), layers.Dense(16, activation="tanh"), layers.Dense(4)])


def taken_of(values: tf.Tensor, chosen: tf.Tensor) -> tf.Tensor:
    return ops.take_along_axis(values, chosen[:, None], axis=1)[:, 0]


model, target = network(), network()
target.set_weights(model.get_weights())
optimizer = keras.optimizers.SGD(0.1)
huber = keras.losses.Huber(reduction="none")
for _ in range(4):
    chosen = rng.choice(64, 16, replace=False)
    x, after, reward, weight = (
        ops.convert_to_tensor(each[chosen], keras.config.floatx()) for each in (states, later, rewards, weights)
    )
    goal = reward + 0.9 * taken_of(target(after), ops.argmax(model(after), axis=1))
    with tf.GradientTape() as tape:
        taken = taken_of(model(x, training=True), ops.convert_to_tensor(actions[chosen]))
        loss = ops.mean(weight * huber(goal[:, None], taken[:, None]))
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply(gradients, model.trainable_variables)
    for slow, fast in zip(target.variables, model.variables, strict=True):
        slow.assign(0.9 * slow + 0.1 * fast)
