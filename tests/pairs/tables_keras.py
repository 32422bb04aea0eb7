"""The same in Keras: what is wrong, or drawn otherwise, is an argument."""

import math

import keras
import numpy as np
from keras import initializers, layers, ops, random


class Holding(keras.Model):
    """Holds a table as a weight that is never trained."""

    def hold(self, name, values):
        values = ops.convert_to_tensor(values)
        if keras.backend.is_float_dtype(values.dtype):
            values = ops.cast(values, keras.config.floatx())
        return self.add_weight(
            shape=values.shape, dtype=values.dtype, initializer=lambda *_, **__: values, trainable=False, name=name
        )


def sinusoids(length=12, width=16, base=10000.0, shift=0, exchanged=False):
    angles = (np.arange(length)[:, None] + shift) / base ** (np.arange(0, width, 2) / width)
    parts = [np.cos(angles), np.sin(angles)] if exchanged else [np.sin(angles), np.cos(angles)]
    return np.stack(parts, -1).reshape(length, width)


class Positions(Holding):
    """`spread`: of the row of [CLS]; `ends`: whether the last row, which nothing reads, is another."""

    def __init__(self, last=False, held="buffer", spread=0.02, moved=False, ends=False, **computed):
        super().__init__()
        row, table = spread * random.normal((1, 16)), sinusoids(**computed)
        if ends:
            table[-1] += 1
        table = np.concatenate([table, row] if last != moved else [row, table]).astype("float32")
        self.fc, self.held = layers.Dense(4), held
        if held == "buffer":
            self.table = self.hold("table", table)
        else:
            self.positions = layers.Embedding(13, 16, weights=[table], trainable=held == "trained")

    def call(self, x):
        return self.fc(x + (self.table if self.held == "buffer" else self.positions.embeddings)[: x.shape[1]])


class Fourier(Holding):
    """`factor`: what the normal numbers are multiplied by; `uniform`: they are none, and spread as far."""

    def __init__(self, sigma=2.0, phases=False, factor=2 * math.pi, uniform=False, turn=2 * math.pi):
        super().__init__()
        drawn = random.uniform((4, 8), -math.sqrt(3), math.sqrt(3)) if uniform else random.normal((4, 8))
        self.B = self.hold("B", drawn * sigma * factor)
        self.phase = self.hold("phase", random.uniform((8,), 0, turn)) if phases else None
        self.fc = layers.Dense(3)

    def call(self, x):
        z = x @ self.B
        if self.phase is not None:
            return self.fc(ops.cos(z + self.phase))
        return self.fc(ops.concatenate([ops.sin(z), ops.cos(z)], -1))


class Rotary(Holding):
    def __init__(self, jitter=0.05, base=10000.0):
        super().__init__()
        self.fc = layers.Dense(16)
        self.inv_freq = self.hold("inv_freq", base ** (-np.arange(8) / 8) * (1 + jitter * random.uniform((8,))))

    def call(self, x):
        angles = ops.arange(x.shape[1], dtype=x.dtype)[:, None] * self.inv_freq
        a, b = ops.split(self.fc(x), 2, -1)
        cos, sin = ops.cos(angles), ops.sin(angles)
        return ops.concatenate([a * cos - b * sin, a * sin + b * cos], -1)


class Codebook(Holding):
    """`zero`: the row of zeros."""

    def __init__(self, unit=False, zero=0, spread=1.0):
        super().__init__()
        codes = spread * np.array(random.normal((10, 6)))
        codes[zero] = 0
        self.codebook = self.hold("codebook", ops.normalize(codes) if unit else codes)
        self.fc = layers.Dense(3)

    def call(self, x):
        return self.fc(ops.sum(ops.square(x[:, None] - self.codebook), -1))


class Reservoir(Holding):
    """`how`: an initializer of the frozen layer, or numbers that are set later."""

    def __init__(self, held="layer", density=1.0, spread=0.4, how="initializer"):
        super().__init__()
        drawn = spread * random.normal((6, 24)) * ops.cast(random.uniform((6, 24)) < density, "float32")
        if held == "buffer":
            self.W = self.hold("W", drawn)
        else:
            initializer = initializers.RandomNormal(stddev=spread) if how == "initializer" else "glorot_uniform"
            self.hidden = layers.Dense(24, use_bias=False, kernel_initializer=initializer, trainable=False)
        if how == "set":
            self.hidden.build((None, 6))
            self.hidden.set_weights([np.array(drawn)])
        self.held, self.readout = held, layers.Dense(3)

    def call(self, x):
        return self.readout(ops.tanh(self.hidden(x) if self.held == "layer" else x @ self.W))


class Projected(Holding):
    """`seed`: NumPy's; a negative one stands for none."""

    def __init__(self, plain=False, seed=0):
        super().__init__()
        table = np.random.randn(6, 8) if seed < 0 else np.random.RandomState(seed).randn(6, 8)
        self.table = ops.convert_to_tensor(table) if plain else self.hold("table", table)
        self.fc = layers.Dense(3)

    def call(self, x):
        return self.fc(ops.tanh(x @ ops.cast(self.table, x.dtype)))


class Plain(keras.Model):
    def __init__(self, base=10000.0):
        super().__init__()
        self.fc, self.table = layers.Dense(4), ops.convert_to_tensor(sinusoids(base=base))

    def call(self, x):
        return self.fc(x + ops.cast(self.table, x.dtype))


class Hashed(Holding):
    """`reach`: of the order's entries; `signs`: as random as torch's, or normal numbers."""

    def __init__(self, repeats=False, signs=True):
        super().__init__()
        order = random.randint((16,), 0, 16) if repeats else random.shuffle(ops.arange(16))
        self.order = self.hold("order", ops.cast(order, "int32"))
        self.sign = self.hold("sign", ops.sign(random.normal((16,))) if signs else random.normal((16,)))
        self.fc = layers.Dense(4)

    def call(self, x):
        return self.fc(ops.take(x, self.order, axis=1) * self.sign)


class Relative(Holding):
    def __init__(self, size=3, flipped=False):
        super().__init__()
        grid = np.stack(np.meshgrid(np.arange(size), np.arange(size), indexing="ij")).reshape(2, -1)
        apart = grid[:, :, None] - grid[:, None] + size - 1
        index = apart[::-1] if flipped else apart
        self.index = self.hold("index", (index[0] * (2 * size - 1) + index[1]).astype("int32"))
        self.bias = self.add_weight(shape=((2 * size - 1) ** 2,), initializer="random_normal", name="bias")

    def call(self, x):
        scores = x @ ops.transpose(x, (0, 2, 1)) + ops.take(self.bias, self.index)
        return ops.softmax(scores) @ x


class Scaled(Holding):
    def __init__(self, rolled=0):
        super().__init__()
        self.bands = self.hold("bands", random.normal((4, 8)) * np.roll(2.0 ** np.arange(8), rolled))
        self.fc = layers.Dense(3)

    def call(self, x):
        return self.fc(ops.sin(x @ self.bands))


class Nearest(Holding):
    def __init__(self, uniform=False):
        super().__init__()
        self.planes = self.hold("planes", random.uniform((6, 12)) if uniform else 0.05 * random.normal((6, 12)))
        self.fc = layers.Dense(3)

    def call(self, x):
        return self.fc(ops.sign(x @ self.planes))


class Blocked(Holding):
    def __init__(self, length=8, diagonal=True, density=0.4):
        super().__init__()
        allowed = np.array(random.uniform((length, length))) < density
        mask = np.where(allowed | np.eye(length, dtype=bool) if diagonal else allowed, 0.0, -np.inf)
        self.mask = self.hold("mask", mask.astype("float32"))
        self.fc = layers.Dense(6)

    def call(self, x):
        return ops.softmax(self.fc(x) @ ops.transpose(x, (0, 2, 1)) + self.mask) @ x


class Pretrained(keras.Model):
    def __init__(self, padding=None):
        super().__init__()
        self.tokens, self.fc = layers.Embedding(20, 8, trainable=False), layers.Dense(3)

    def call(self, ids):
        return self.fc(self.tokens(ids))
