"""The counterparts of axes_torch.py, with faults at which values no longer tell the order of axes."""

import keras
from keras import layers, ops


class Images(keras.Model):
    def __init__(self, down, same=False):
        super().__init__()
        self.conv1, self.act = layers.Conv2D(6, 3, padding="same"), layers.ReLU()
        is_conv, padding = down == "conv", "same" if same else "valid"
        self.before = [] if same or not is_conv else [layers.ZeroPadding2D(1)]
        if is_conv:
            self.down = layers.Conv2D(6, 3, strides=2, padding=padding)
        elif down == "transposed":
            self.down = layers.Conv2DTranspose(6, 3, strides=2, padding=padding)
        elif down == "max":
            self.before = [] if same else [layers.ZeroPadding2D(1)]  # behind a ReLU, a zero is no maximum
            self.down = layers.MaxPooling2D(3, 2, padding=padding)
        else:
            self.before = [] if same else [layers.ZeroPadding2D(1)]
            self.down = layers.AveragePooling2D(3, 2, padding=padding)
        self.behind = [layers.Cropping2D(((1, 0), (1, 0)))] if down == "transposed" and not same else []
        self.conv2, self.head = layers.Conv2D(6, 3, padding="same"), layers.Dense(5)

    def call(self, x):
        x = self.act(self.conv1(x))
        for layer in (*self.before, self.down, *self.behind):
            x = layer(x)
        return self.head(ops.mean(ops.relu(self.conv2(x)), (1, 2)))


class Steps(keras.Model):
    def __init__(self, epsilon=1e-5, reversed_steps=False):
        super().__init__()
        self.conv, self.norm = layers.Conv1D(8, 3, padding="same"), layers.LayerNormalization(epsilon=epsilon)
        self.head, self.reversed_steps = layers.Dense(8), reversed_steps

    def call(self, x):
        x = self.conv(x[:, ::-1] if self.reversed_steps else x)
        return self.head(ops.tanh(self.norm(x)))


class Maps(keras.Model):
    def __init__(self, axis=-1, scale=0.5):
        super().__init__()
        self.q, self.k, self.v, self.out = (layers.Dense(16) for _ in range(4))
        self.softmax, self.scale = layers.Softmax(axis), scale

    def call(self, x):
        n, t, d = x.shape
        q, k, v = (ops.transpose(ops.reshape(f(x), (n, t, 4, 4)), (0, 2, 1, 3)) for f in (self.q, self.k, self.v))
        weights = self.softmax(ops.matmul(q, ops.transpose(k, (0, 1, 3, 2))) * self.scale)
        return self.out(ops.reshape(ops.transpose(ops.matmul(weights, v), (0, 2, 1, 3)), (n, t, d)))
