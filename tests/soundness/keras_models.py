"""The Keras halves of the soundness table: the same chains of steps as in torch_models.py."""

import itertools
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf
from keras import layers
from keras_layers import LAYERS
from keras_steps import COMBINED, FUNCTIONS
from notation import parse, runs

Steps = Sequence[Any]


class Chain(keras.Model):
    """Calls its steps one after the other. Layers are attributes named by kind and number: linear0, linear1."""

    def __init__(self, steps: Steps, **kwargs):
        super().__init__(**kwargs)
        self.calls = tuple(self._prepared(step) for step in steps)

    def _prepared(self, step: Any) -> tuple[str, Any]:
        if isinstance(step, dict):
            return "", self._branches(step)
        prefix, name, given = parse(step)
        if name in LAYERS:
            layer = LAYERS[name](*given, name=self._named(name))
            setattr(self, layer.name, layer)
            return prefix, lambda x, training: self._through(layer, x, training)
        if name == "again":  # a layer that was called before
            return prefix, lambda x, training: self._through(getattr(self, given[0]), x, training)
        return prefix, lambda x, training: FUNCTIONS[name](x, *given)

    def _through(self, layer: keras.Layer, x: Any, training: bool) -> Any:
        return layer(x, training=training) if layer._call_has_training_arg else layer(x)

    def _named(self, kind: str) -> str:
        for variant in ("padded_", "biased_", "no_"):
            kind = kind.removeprefix(variant)
        names = (f"{kind}{number}" for number in itertools.count())
        return next(name for name in names if not hasattr(self, name) and not hasattr(self, f"{name}_0"))

    def _branches(self, step: dict[str, list[Steps]]) -> Any:
        ((name, chains),) = step.items()
        place = self._named("branch")
        branches = [Chain(steps, name=f"{place}_{number}") for number, steps in enumerate(chains)]
        for number, branch in enumerate(branches):
            setattr(self, f"{place}_{number}", branch)
        return lambda x, training: COMBINED[name]([branch(x, training=training) for branch in branches])

    def call(self, x: Any, training: bool = False) -> Any:
        for prefix, step in self.calls:
            if runs(prefix, bool(training), keras.config.floatx() == "float64"):
                x = step(x, training)
        return x


def chain(steps: Steps) -> keras.Model:
    return Chain(steps, name="chain")


class Named(keras.Model):
    """A model whose layers are attributes; `named`: they have these names for Keras too."""

    def __init__(self, named: bool, **made: Any):
        super().__init__()
        for name, (kind, *given) in made.items():
            setattr(self, name, kind(*given, name=name) if named else kind(*given))


def norm(name: str | None = None) -> layers.Layer:
    return layers.LayerNormalization(epsilon=1e-5, name=name)


class Gated(Named):
    """silu(gate(x)) * up(x); `exchanged`: the other way round."""

    def __init__(self, exchanged: bool, named: bool):
        super().__init__(named, gate=(layers.Dense, 16), up=(layers.Dense, 16), down=(layers.Dense, 8))
        self.exchanged = exchanged

    def call(self, x):
        first, second = (self.up, self.gate) if self.exchanged else (self.gate, self.up)
        passed = first(x)
        return self.down(passed * tf.sigmoid(passed) * second(x))


class Attention(Named):
    """One head; `order`: which of the layers makes queries, keys and values."""

    def __init__(self, order: Sequence[str], bias: bool, causal: float | str, named: bool):
        dense = (dense_with_bias if bias else dense_without_bias, 8)
        super().__init__(named, norm=(norm,), query=dense, key=dense, value=dense, out=(layers.Dense, 8))
        self.order, self.causal = tuple(order), causal

    def call(self, x):
        normal = self.norm(x)
        query, key, value = (getattr(self, name)(normal) for name in self.order)
        scores = tf.matmul(query, key, transpose_b=True) / 8**0.5
        if self.causal:
            count = x.shape[1]
            later = tf.range(count)[None] > tf.range(count)[:, None]
            scores = tf.where(later, tf.constant(float(self.causal), x.dtype), scores)
        return x + self.out(tf.matmul(tf.nn.softmax(scores), value))


def dense_with_bias(width: int, name: str | None = None) -> layers.Layer:
    return layers.Dense(width, name=name)


def dense_without_bias(width: int, name: str | None = None) -> layers.Layer:
    return layers.Dense(width, use_bias=False, name=name)


class Heads(Named):
    """Two heads of one shape on a body; `exchanged`: each returns what the other should."""

    def __init__(self, exchanged: bool, named: bool):
        super().__init__(named, body=(layers.Dense, 16), mean=(layers.Dense, 4), spread=(layers.Dense, 4))
        self.exchanged = exchanged

    def call(self, x):
        hidden = tf.tanh(self.body(x))
        found = self.mean(hidden), self.spread(hidden)
        return found[::-1] if self.exchanged else found


class Towers(Named):
    """Two encoders of one shape for two inputs; `exchanged`: each reads the other's."""

    def __init__(self, exchanged: bool, named: bool):
        super().__init__(named, user=(layers.Dense, 8, "tanh"), item=(layers.Dense, 8, "tanh"))
        self.exchanged = exchanged

    def call(self, user, item):
        if self.exchanged:
            user, item = item, user
        return self.user(user) - 2 * self.item(item)


class Embedded(Named):
    """Words and types of one size of vocabulary; `exchanged`: each looks up in the other's table."""

    def __init__(self, exchanged: bool, named: bool):
        super().__init__(named, words=(layers.Embedding, 20, 8), types=(layers.Embedding, 20, 8), norm=(norm,))
        self.exchanged = exchanged

    def call(self, words, types):
        if self.exchanged:
            words, types = types, words
        return self.norm(self.words(words) + 2 * self.types(types))


class Normed(Named):
    """Two norms of one shape around a layer; `exchanged`: each in the other's place."""

    def __init__(self, exchanged: bool, named: bool):
        super().__init__(named, norm_before=(norm,), layer=(layers.Dense, 8), norm_after=(norm,))
        self.exchanged = exchanged

    def call(self, x):
        before, after = (self.norm_after, self.norm_before) if self.exchanged else (self.norm_before, self.norm_after)
        return after(self.layer(before(x)))


class Recurrence(Named):
    """A gated recurrence by hand over the second axis; `exchanged`: update and reset gates."""

    def __init__(self, exchanged: bool, named: bool):
        super().__init__(named, update=(layers.Dense, 8), reset=(layers.Dense, 8), new=(layers.Dense, 8))
        self.exchanged = exchanged

    def call(self, x):
        update, reset = (self.reset, self.update) if self.exchanged else (self.update, self.reset)
        state = tf.zeros_like(x[:, 0])
        for place in range(x.shape[1]):
            joined = tf.concat([x[:, place], state], -1)
            share, kept = tf.sigmoid(update(joined)), tf.sigmoid(reset(joined))
            fresh = tf.tanh(self.new(tf.concat([x[:, place], kept * state], -1)))
            state = (1 - share) * state + share * fresh
        return state


def gated(exchanged: bool = False, named: bool = True) -> keras.Model:
    return Gated(exchanged, named)


def attention(
    order: Sequence[str] = ("query", "key", "value"), bias: bool = True, causal: float | str = 0.0, named: bool = True
) -> keras.Model:
    return Attention(order, bias, causal, named)


def heads(exchanged: bool = False, named: bool = True) -> keras.Model:
    return Heads(exchanged, named)


def towers(exchanged: bool = False, named: bool = True) -> keras.Model:
    return Towers(exchanged, named)


def embedded(exchanged: bool = False, named: bool = True) -> keras.Model:
    return Embedded(exchanged, named)


def normed(exchanged: bool = False, named: bool = True) -> keras.Model:
    return Normed(exchanged, named)


def recurrence(exchanged: bool = False, named: bool = True) -> keras.Model:
    return Recurrence(exchanged, named)
