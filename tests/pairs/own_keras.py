"""The same."""

import keras
from keras import layers, ops


def build() -> keras.Model:
    x = keras.Input((6,), name="features")
    hidden = layers.Dense(10, activation="tanh", name="trunk")(x)
    mean = layers.Dense(2, name="location")(hidden)
    return keras.Model(x, [mean, layers.Dense(2, activation="softplus", name="scale")(hidden)])


def loss(outputs, target):
    error = ops.abs((target - outputs["mean"]) / (outputs["spread"] + 0.5))
    huber = ops.where(error < 1, error**2 / 2, error - 0.5)
    return ops.mean(huber) + ops.mean(outputs["spread"])


def summed_loss(outputs, target):
    """Of the wrong scale."""
    return loss(outputs, target) * target.shape[0]


class Momentum(keras.optimizers.SGD):
    """torch's form: the learning rate is no part of the velocity."""

    def update_step(self, gradient, variable, learning_rate):
        velocity = self.momentums[self._get_variable_index(variable)]
        velocity.assign(velocity * 0.75 + gradient)
        variable.assign_sub(velocity * ops.cast(learning_rate, variable.dtype))


def optimizer() -> keras.optimizers.Optimizer:
    return Momentum(2**-5, momentum=0.75)


def rmsprop() -> keras.optimizers.Optimizer:
    return keras.optimizers.RMSprop(2**-8, rho=0.99, epsilon=1e-8)


def nesterov() -> keras.optimizers.Optimizer:
    return keras.optimizers.SGD(2**-5, momentum=0.75, nesterov=True)
