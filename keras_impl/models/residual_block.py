"""A residual block with batch norm (He et al. 2015, "Deep residual learning", figure 2)."""

import keras
import tensorflow as tf

from keras_impl.models.block import Block


@keras.saving.register_keras_serializable("parity")
class ResidualBlock(keras.Model):
    """A residual block with a 3x3-3x3 main path and a shortcut.

    Input: (batch, height, width, in_channels); output: (batch, height, width, out_channels). The shortcut is the
    identity if the numbers of channels agree, otherwise a 1x1 convolution with batch norm.
    """

    def __init__(self, in_channels: int, out_channels: int, **kwargs):
        super().__init__(**kwargs)
        self.config = {"in_channels": in_channels, "out_channels": out_channels}
        # At stride 1, "same" pads evenly, as PyTorch's padding=1 does (at stride 2 it would not).
        self.conv1 = keras.layers.Conv2D(out_channels, 3, padding="same", name="conv1")
        self.bn1 = BatchNorm2d(name="bn1")
        self.relu = keras.layers.ReLU(name="relu")
        self.conv2 = keras.layers.Conv2D(out_channels, 3, padding="same", name="conv2")
        self.bn2 = BatchNorm2d(name="bn2")
        if in_channels == out_channels:
            self.shortcut = keras.layers.Identity(name="shortcut")
        else:
            layers = [keras.layers.Conv2D(out_channels, 1, name="0"), BatchNorm2d(name="1")]
            self.shortcut = keras.Sequential(layers, name="shortcut")

    def build(self, input_shape: tuple) -> None:
        hidden_shape = (*input_shape[:-1], self.conv1.filters)
        self.conv1.build(input_shape)
        self.conv2.build(hidden_shape)
        self.bn1.build(hidden_shape)
        self.bn2.build(hidden_shape)
        self.shortcut.build(input_shape)

    def call(self, x: tf.Tensor, training: bool = False) -> tf.Tensor:
        main = self.relu(self.bn1(self.conv1(x), training=training))
        main = self.bn2(self.conv2(main), training=training)
        return self.relu(main + self.shortcut(x, training=training))

    def blocks(self) -> list[Block]:
        """Return two blocks, cut after the first ReLU of the main path; the input is passed along for the shortcut."""

        def first(x: tf.Tensor, training: bool = False) -> tuple[tf.Tensor, tf.Tensor]:
            return tf.nn.relu(self.bn1(self.conv1(x), training=training)), x

        def second(main: tf.Tensor, x: tf.Tensor, training: bool = False) -> tf.Tensor:
            main = self.bn2(self.conv2(main), training=training)
            return tf.nn.relu(main + self.shortcut(x, training=training))

        return [Block([self.conv1, self.bn1], first), Block([self.conv2, self.bn2, self.shortcut], second)]

    def get_config(self) -> dict:
        return {**super().get_config(), **self.config}


@keras.saving.register_keras_serializable("parity")
class BatchNorm2d(keras.layers.BatchNormalization):
    """Batch norm with the conventions of torch.nn.BatchNorm2d.

    Epsilon is 1e-5, new statistics have the weight 0.1, and the running variance is the unbiased one (divided by n -
    1), which Keras has no argument for.
    """

    def __init__(self, momentum: float = 0.9, epsilon: float = 1e-5, **kwargs):
        super().__init__(momentum=momentum, epsilon=epsilon, **kwargs)

    def call(self, x: tf.Tensor, training: bool = False) -> tf.Tensor:
        # The sums overflow in half precision, so statistics are computed in float32 at least.
        x = tf.cast(x, keras.backend.result_type(self.compute_dtype, "float32"))
        if training:
            mean = _mean(x)
            centred = x - _spread(mean, x)
            variance = _mean(tf.square(centred))
            count = tf.cast(tf.size(x) / tf.size(mean), x.dtype)
            self._track(self.moving_mean, mean)
            self._track(self.moving_variance, variance * (count / (count - 1)))
        else:
            centred, variance = x - self.moving_mean.value, self.moving_variance.value
        scale = tf.math.rsqrt(variance + self.epsilon) * self.gamma.value
        outputs = centred * _spread(scale, x) + _spread(self.beta.value, x)
        return tf.cast(outputs, self.compute_dtype)

    def _track(self, statistic: keras.Variable, new: tf.Tensor) -> None:
        statistic.assign(statistic.value * self.momentum + new * (1 - self.momentum))


def _mean(x: tf.Tensor) -> tf.Tensor:
    """Return the mean of (N, H, W, C) over all axes but the last, shape (C,), reducing one axis at a time.

    TensorFlow adds the numbers of one reduction in sequence: a single sum over all pixels of a batch loses 4 bits more
    than these three short ones.
    """
    for axis in (2, 1, 0):
        x = tf.reduce_mean(x, axis=axis)
    return x


def _spread(statistic: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
    """Broadcast (C,) to (N, H, 1, C), one axis at a time.

    The gradient of a broadcast is a sum, which is thus taken one axis at a time too (see `_mean`).
    """
    n, h, _, c = tf.unstack(tf.shape(x))
    return tf.broadcast_to(tf.broadcast_to(statistic, (n, 1, 1, c)), (n, h, 1, c))
