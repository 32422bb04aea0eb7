"""The same in Keras, with other names, other orders of calls, or no names. Arguments exchange or spoil something."""

import keras
import tensorflow as tf
from keras import layers, ops

Dense = layers.Dense


class Gated(keras.Model):
    """The activation belongs to the gate's layer, as in many ports."""

    def __init__(self, activation="gelu", exchanged=False):
        super().__init__()
        self.input_projector, self.gate_projector, self.output_projector = Dense(16), Dense(16), Dense(8)
        gate = self.input_projector if exchanged else self.gate_projector
        gate.activation = ACTIVATIONS[activation]

    def call(self, x):
        return self.output_projector(self.input_projector(x) * self.gate_projector(x))


def exact(x):
    return x * 0.5 * (1 + ops.erf(x / ops.sqrt(ops.cast(2, x.dtype))))


ACTIVATIONS = {"gelu": exact, "relu": keras.activations.relu}


class Named(keras.Model):
    def __init__(self, exchanged=False):
        super().__init__()
        self.up_dense, self.gating, self.down = Dense(16), Dense(16), Dense(8)
        self.exchanged = exchanged

    def call(self, x):
        gate, up = (self.up_dense, self.gating) if self.exchanged else (self.gating, self.up_dense)
        return self.down(ops.silu(gate(x)) * up(x))


class Block(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.first, self.second = Dense(8, activation="tanh"), Dense(8)
        self.norm = layers.LayerNormalization(epsilon=1e-5)

    def call(self, x):
        return self.norm(x + self.second(self.first(x)))


class Tower(layers.Layer):
    def __init__(self, depth, **kwargs):
        super().__init__(**kwargs)
        self.dense = Dense(8)
        self.blocks = [Block() for _ in range(depth)]

    def call(self, x):
        x = self.dense(x)
        for block in self.blocks:
            x = block(x)
        return x


class Towers(keras.Model):
    """Called in another order. `named` towers say what they are, others are numbered by Keras."""

    def __init__(self, depth=2, exchanged=False, named=True):
        super().__init__()
        names = ("audio_encoder", "vision_encoder", "text_encoder") if named else (None, None, None)
        self.parts = [Tower(depth, name=name) for name in names]
        self.exchanged = exchanged

    def call(self, x):
        audio, vision, text = self.parts
        if self.exchanged:
            vision, text = text, vision
        audio, vision, text = audio(x[:, 16:]), vision(x[:, 8:16]), text(x[:, :8])
        return ops.concatenate([text * vision, vision * audio], -1)


def conv(x, size):
    x = layers.Conv2D(8, size, padding="same", use_bias=False)(x)
    return layers.ReLU()(layers.BatchNormalization()(x))


def inception(blocks=2, exchanged=False):
    x = y = keras.Input((5, 7, 8))
    for _ in range(blocks):
        first = conv(y, 1)
        second = conv(conv(y, 1), 3)
        third = conv(conv(conv(y, 1), 3), 3)
        if exchanged:
            first, second = second, first
        y = first - 2 * second + 3 * third
    return keras.Model(x, y)


class Projection(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.dense, self.norm = Dense(8), layers.LayerNormalization(epsilon=1e-5)

    def call(self, x):
        return self.norm(self.dense(x))


class Attention(keras.Model):
    def __init__(self, exchanged=False, named=True):
        super().__init__()
        names = ("value", "key", "query") if named else (None, None, None)
        self.parts = [Projection(name=name) for name in names]
        self.exchanged = exchanged

    def call(self, x):
        value, key, query = (layer(x) for layer in self.parts)
        if self.exchanged:
            query, value = value, query
        scores = query @ ops.swapaxes(key, -1, -2) / 8**0.5
        return ops.softmax(ops.tril(scores)) @ value


class Normed(keras.Model):
    """`scale` says which of the norms have one."""

    def __init__(self, batch=False, scale=(True, False)):
        super().__init__()
        norm = layers.BatchNormalization if batch else layers.LayerNormalization
        self.dense1, self.norm1 = Dense(8), norm(scale=scale[0], epsilon=0.001)
        self.dense2, self.norm2 = Dense(8), norm(scale=scale[1], epsilon=0.001)

    def call(self, x):
        return self.norm2(self.dense2(ops.tanh(self.norm1(self.dense1(x)))))


class Positions(keras.Model):
    """Without rows for padding; `first` is wrong if it is not 0."""

    def __init__(self, first=0, name=None):
        super().__init__()
        self.table, self.first = layers.Embedding(5, 8, name=name), first

    def call(self, x):
        return x * self.table((ops.arange(5) + self.first) % 5)


class Grouped(keras.Model):
    def __init__(self, exchanged=False):
        super().__init__()
        self.query, self.key = Dense(12, name="query"), Dense(6, name="key")
        self.value = Dense(6, name="value")
        self.exchanged = exchanged

    def call(self, x):
        key, value = (self.value, self.key) if self.exchanged else (self.key, self.value)
        return ops.tanh(self.query(x)), ops.sigmoid(key(x)), value(x)


class Experts(keras.Model):
    def __init__(self, act="silu", experts=3):
        super().__init__()
        self.act = keras.activations.get(act)
        self.bank = Bank(experts)

    def call(self, x):
        gate, up = (ops.einsum("nd,edh->enh", x, each) for each in (self.bank.gate, self.bank.up))
        return ops.einsum("enh,ehd->nd", self.act(gate) * up, self.bank.down)


class Bank(layers.Layer):
    def __init__(self, experts):
        super().__init__(name="bank")
        self.gate = self.add_weight(shape=(experts, 8, 6), name="expert_gate")
        self.up = self.add_weight(shape=(experts, 8, 6), name="expert_intermediate")
        self.down = self.add_weight(shape=(experts, 6, 8), name="expert_output")


class Heads(keras.Model):
    """`taken`: the head that is called, if any. `made`: the heads there are."""

    def __init__(self, taken="main", made=("main", "spare")):
        super().__init__()
        self.trunk = Dense(8, activation="tanh", name="trunk")
        self.of = {name: Dense(3, name=name) for name in made}
        for head in self.of.values():
            head.build((None, 8))
        self.taken = taken

    def call(self, x):
        x = self.trunk(x)
        return self.of[self.taken](x) if self.taken else x[:, :3]


class Pooled(keras.Model):
    """Without the last layer, and with one of its own for words that nothing reads."""

    def __init__(self):
        super().__init__()
        self.trunk, self.words = Dense(8, activation="tanh", name="trunk"), layers.Embedding(7, 5, name="words")
        self.words.build(None)

    def call(self, x):
        return self.trunk(x)


@tf.custom_gradient
def doubled(x):
    def gradient(upstream):
        raise LookupError("gradient registry has no entry for: Doubled")

    return 2 * x, gradient


class Stepped(keras.Model):
    def __init__(self):
        super().__init__()
        self.fc = Dense(8)

    def call(self, x):
        return doubled(self.fc(x))


class Unfolded(keras.Model):
    def __init__(self):
        super().__init__()
        self.proj = layers.Conv2D(16, 4, strides=4)
        self.head = layers.Dense(5)

    def call(self, x):
        y = ops.tanh(self.proj(x))
        return self.head(ops.mean(y, axis=(1, 2)))


class GRUCell(layers.Layer):
    def __init__(self, units, order, after):
        super().__init__()
        self.units, self.order, self.after = units, order, after

    def build(self, shape):
        self.kernel = self.add_weight(shape=(shape[-1], 3 * self.units), name="kernel")
        self.recurrent = self.add_weight(shape=(self.units, 3 * self.units), name="recurrent")
        self.bias = self.add_weight(shape=(3 * self.units,), name="bias", initializer="zeros")
        self.recurrent_bias = self.add_weight(shape=(3 * self.units,), name="recurrent_bias", initializer="zeros")

    def call(self, x, h):
        of_x = dict(zip(self.order, ops.split(x @ self.kernel + self.bias, 3, axis=-1), strict=True))
        of_h = dict(zip(self.order, ops.split(h @ self.recurrent + self.recurrent_bias, 3, axis=-1), strict=True))
        z, r = (ops.sigmoid(of_x[gate] + of_h[gate]) for gate in "zr")
        n = ops.tanh(of_x["n"] + r * of_h["n"]) if self.after else ops.tanh(r * (of_x["n"] + of_h["n"]))
        return z * h + (1 - z) * n


class Cell(keras.Model):
    def __init__(self, order="zrn", after=True):
        super().__init__()
        self.cell = GRUCell(8, order, after)
        self.head = layers.Dense(3)

    def call(self, x):
        h = ops.zeros((x.shape[0], 8), x.dtype)
        for t in range(x.shape[1]):
            h = self.cell(x[:, t], h)
        return self.head(h)


class Turned(keras.Model):
    def __init__(self):
        super().__init__()
        self.turned = layers.Conv2D(4, 3, padding="same")
        self.c = layers.Conv2D(2, 3, padding="same")

    def call(self, x):
        return self.c(ops.tanh(self.turned(x)))


class Framework(keras.Model):
    """The cell of `Cell` as Keras has it, with both biases in one variable."""

    def __init__(self):
        super().__init__()
        self.cell, self.head = layers.GRUCell(8), layers.Dense(3)

    def call(self, x):
        h = ops.zeros((x.shape[0], 8), x.dtype)
        for t in range(x.shape[1]):
            h, _ = self.cell(x[:, t], [h])
        return self.head(h)


class Gate(keras.layers.Layer):
    def __init__(self):
        super().__init__()
        self.norm = keras.layers.LayerNormalization(epsilon=1e-5)

    def call(self, x):
        kept, gate = keras.ops.split(x, 2, -1)
        return kept * self.norm(gate)


class Spatial(keras.Model):
    def __init__(self):
        super().__init__()
        self.inner, self.gate, self.outer = keras.layers.Dense(12), Gate(), keras.layers.Dense(8)

    def call(self, x):
        return self.outer(self.gate(keras.ops.gelu(self.inner(x))))
