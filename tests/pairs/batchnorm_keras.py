"""The same with torch's batch normalisation, whose running variance is the unbiased one; and with Keras's own."""

import keras
from keras import layers, ops


class BatchNorm(layers.Layer):
    """torch.nn.BatchNorm2d, channels last."""

    def __init__(self, momentum: float = 0.1, epsilon: float = 1e-5, **kwargs):
        super().__init__(**kwargs)
        self.momentum, self.epsilon = momentum, epsilon

    def build(self, shape):
        self.gamma = self.add_weight(shape=shape[-1:], initializer="ones", name="gamma")
        self.beta = self.add_weight(shape=shape[-1:], initializer="zeros", name="beta")
        self.moving_mean = self.add_weight(shape=shape[-1:], initializer="zeros", trainable=False, name="moving_mean")
        self.moving_variance = self.add_weight(
            shape=shape[-1:], initializer="ones", trainable=False, name="moving_variance"
        )

    def call(self, x, training=False):
        mean, variance = self.moving_mean.value, self.moving_variance.value
        if training:
            mean, variance = ops.mean(x, (0, 1, 2)), ops.var(x, (0, 1, 2))
            count = x.shape[0] * x.shape[1] * x.shape[2]
            self.follow(self.moving_mean, mean)
            self.follow(self.moving_variance, variance * (count / (count - 1)))
        return (x - mean) / ops.sqrt(variance + self.epsilon) * self.gamma + self.beta

    def follow(self, moving, seen):
        moving.assign(moving * (1 - self.momentum) + seen * self.momentum)


def build(own: bool = False, momentum: float = 0.1, epsilon: float = 1e-5) -> keras.Model:
    """`own`: Keras's layer, which weighs the past with its momentum, and not the present."""
    images = keras.Input((9, 9, 3))
    x = layers.Conv2D(6, 3)(images)
    x = layers.ReLU()(norm(own, momentum, epsilon)(x))
    x = layers.Conv2D(8, 3, strides=2, use_bias=False)(x)
    x = layers.ReLU()(norm(own)(x))
    return keras.Model(images, layers.Dense(5)(layers.GlobalAveragePooling2D()(x)))


def norm(own: bool, momentum: float = 0.1, epsilon: float = 1e-5) -> layers.Layer:
    if own:
        return layers.BatchNormalization(momentum=1 - momentum, epsilon=epsilon)
    return BatchNorm(momentum, epsilon)
