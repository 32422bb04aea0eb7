"""The same; Keras's layers have no names of their own. What is wrong on request is said by each builder's arguments."""

import keras
import tensorflow as tf
from keras import layers, ops

Dense = layers.Dense


class Glu(keras.Model):
    def __init__(self, exchanged=False):
        super().__init__()
        self.up, self.gate, self.down = Dense(16), Dense(16), Dense(8)  # in another order
        self.exchanged = exchanged

    def call(self, x):
        gate, up = (self.up, self.gate) if self.exchanged else (self.gate, self.up)
        return self.down(ops.silu(gate(x)) * up(x))


class Scores(keras.Model):
    def __init__(self, exchanged=False):
        super().__init__()
        self.q, self.k, self.v, self.exchanged = Dense(8), Dense(8), Dense(8), exchanged

    def call(self, x):
        q, k = (self.k, self.q) if self.exchanged else (self.q, self.k)
        scores = q(x) @ ops.swapaxes(k(x), -1, -2) / 8**0.5
        return ops.tril(ops.softmax(scores)) @ self.v(x)


class Heads(keras.Model):
    def __init__(self, exchanged=False):
        super().__init__()
        self.body, self.head_a, self.head_b, self.exchanged = Dense(8), Dense(4), Dense(4), exchanged

    def call(self, x):
        hidden = ops.tanh(self.body(x))
        found = self.head_a(hidden), self.head_b(hidden)
        return found[::-1] if self.exchanged else found


def unnamed_heads(exchanged=False):
    x = keras.Input((8,))
    hidden = Dense(8, activation="tanh")(x)
    found = [Dense(4)(hidden), Dense(4)(hidden)]
    return keras.Model(x, found[::-1] if exchanged else found)


class Blocks(keras.Model):
    def __init__(self, exchanged=False):
        super().__init__()
        self.layers_of_it, self.exchanged = [Dense(8, activation="tanh") for _ in range(3)], exchanged

    def call(self, x):
        for layer in reversed(self.layers_of_it) if self.exchanged else self.layers_of_it:
            x = layer(x)
        return x


class Matrices(keras.Model):
    def __init__(self, exchanged=False):
        super().__init__()
        self.up, self.gate = self.add_weight(shape=(8, 6)), self.add_weight(shape=(8, 6))
        self.exchanged = exchanged

    def call(self, x):
        gate, up = (self.up, self.gate) if self.exchanged else (self.gate, self.up)
        return ops.sigmoid(x @ gate) * (x @ up)


def bilinear():
    x = keras.Input((8,))
    return keras.Model(x, Dense(4)(x) * Dense(4)(x))


class Averaging(keras.Model):
    """`held`: it keeps the average too. `after`: how many calls in training it lets pass."""

    def __init__(self, held=True, after=0):
        super().__init__()
        self.fc, self.held, self.after = Dense(8), held, after
        if held:
            self.average = self.add_weight(shape=(8,), initializer="zeros", trainable=False)
            self.calls = self.add_weight(shape=(), dtype="int32", initializer="zeros", trainable=False)

    def call(self, x, training=False):
        y = self.fc(x)
        if training and self.held:
            averaged = self.average * 0.9 + 0.1 * ops.mean(y, 0)
            self.average.assign(ops.where(self.calls < self.after, self.average, averaged))
            self.calls.assign_add(1)
        return y


class Counts(keras.Model):
    """`each`: how much an output above 0 counts; `held`: it counts them; `dtype`: in which it counts."""

    def __init__(self, each=1, held=True, dtype="int32"):
        super().__init__()
        self.fc, self.each, self.held = Dense(6), each, held
        if held:
            self.positive = self.add_weight(
                shape=(6,), dtype=dtype, initializer="zeros", trainable=False, name="positive"
            )

    def call(self, x, training=False):
        y = self.fc(x)
        if training and self.held:
            self.positive.assign_add(self.each * ops.sum(ops.cast(y > 0, self.positive.dtype), 0))
        return y


def normalized():
    return keras.Sequential([Dense(6, name="fc")])


class Positions(keras.Model):
    """`step`: between two positions. `held`: in a variable that is not trained."""

    def __init__(self, step=1.0, held=False):
        super().__init__()
        self.fc, self.step, self.held = Dense(8), step, held
        if held:
            self.table = self.add_weight(shape=(8,), initializer=lambda shape, dtype: self.made(dtype), trainable=False)

    def made(self, dtype):
        return ops.sin(ops.cast(ops.arange(8), dtype) * self.step)

    def call(self, x):
        return self.fc(x + (self.table if self.held else self.made(x.dtype)))


class Floor(keras.Model):
    """`through`: a gradient passes floor, as a straight-through estimator lets it."""

    def __init__(self, through=False):
        super().__init__()
        self.a, self.b, self.pooler, self.through = Dense(8), Dense(8), Dense(8), through

    def call(self, x):
        y, a = self.b(x), self.a(x)
        self.pooler(y)
        return y + (a + ops.stop_gradient(ops.floor(a) - a) if self.through else ops.floor(a))


class Drops(keras.Model):
    """`functional`: by a function; `more`: the rate of a dropout too many, one of 0 is none."""

    def __init__(self, functional=False, rate=0.25, more=0.0):
        super().__init__()
        self.a, self.b = layers.Conv2D(4, 3, activation="relu"), layers.Conv2D(4, 3, activation="relu")
        self.out, self.none, self.one = Dense(5), layers.Dropout(more), layers.Dropout(rate)
        self.tail = keras.Sequential([layers.GlobalAveragePooling2D(), layers.Dropout(0.25)])
        self.functional = functional

    def call(self, x, training=False):
        x = self.none(self.a(x), training=training)
        if not self.functional:
            x = self.one(x, training=training)
        elif training:
            x = keras.random.dropout(x, 0.25)
        return self.out(self.tail(self.b(x), training=training))


class Calls(keras.Model):
    """The second call of each layer is a function's; `biased` or not. In training the activation is one too."""

    def __init__(self, biased=True):
        super().__init__()
        self.a, self.act, self.b, self.biased = Dense(8), layers.Activation("tanh"), Dense(4), biased

    def call(self, x, training=False):
        y = tf.tanh(self.a(x)) if training else self.act(self.a(x))
        z = tf.tanh(y[:2] @ self.a.kernel + (self.a.bias if self.biased else 0))
        return self.b(y), z @ self.b.kernel + self.b.bias


def momentum():
    return keras.optimizers.SGD(0.01, momentum=0.9)


def less_momentum():
    return keras.optimizers.SGD(0.01, momentum=0.8)
