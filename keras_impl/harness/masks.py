"""Dropout masks that both frameworks draw alike: whatever drops in training takes them from the shared source.

A training step is traced once and executed often: the number of the step is a variable, and the calls
of a layer within a step are counted while it is traced. Each replica is traced by itself.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple
from unittest import mock

import keras
import tensorflow as tf
from keras.src import backend

from keras_impl.dropout import Key, dropout, number
from keras_impl.harness import weights
from keras_impl.models.transformer import MultiheadAttention
from keras_impl.strategies.tensor_parallel import SplitDropout
from parity.core import random
from parity.core.errors import UsageError

SUPPORTED = "shared masks are for keras.layers.Dropout and MultiHeadAttention, without noise_shape"
OTHERS = (
    keras.layers.SpatialDropout1D,
    keras.layers.SpatialDropout2D,
    keras.layers.SpatialDropout3D,
    keras.layers.AlphaDropout,
    keras.layers.GaussianDropout,
    keras.layers.SimpleRNN,
    keras.layers.LSTM,
    keras.layers.GRU,
    keras.layers.SimpleRNNCell,
    keras.layers.LSTMCell,
    keras.layers.GRUCell,
    keras.layers.ConvLSTM1D,
    keras.layers.ConvLSTM2D,
    keras.layers.ConvLSTM3D,
    keras.layers.Attention,
    keras.layers.AdditiveAttention,
)
RATES = ("rate", "dropout", "recurrent_dropout", "stddev")
# What keras.random.dropout, through which the other layers drop, is not the source of; or in another order.
UNORDERED = (
    keras.layers.AlphaDropout,
    keras.layers.GaussianDropout,
    keras.layers.GaussianNoise,
    keras.layers.RNN,
    keras.layers.SimpleRNNCell,
    keras.layers.LSTMCell,
    keras.layers.GRUCell,
)
ATTENTIONS = (MultiheadAttention, keras.layers.MultiHeadAttention, keras.layers.GroupQueryAttention)


class Dropping(NamedTuple):
    """A layer that drops, in a replica or in all of them.

    `name`: of the PyTorch module that drops there. `start`, `whole`: where its inputs are a part of the last
    axis. `weights`: whether they are an attention's, whose axes stand in the same order on both sides.
    """

    layer: keras.layers.Dropout
    name: str
    start: int = 0
    whole: int | None = None
    weights: bool = False


class Masks:
    """Draws the masks of one run. `layouts`: from a model's axis order to PyTorch's, by the number of axes."""

    def __init__(self, seed: int, layouts: dict[int, str]):
        self.seed, self.layouts = seed, layouts
        with tf.device("CPU:0"):
            self.step = tf.Variable(0, trainable=False, dtype=tf.int64)
        self._calls: Counter[tuple] = Counter()

    def attach(self, model: keras.Model, replica: int) -> None:
        """From now on the layers of the model drop by shared masks. Raises UsageError for other kinds."""
        for dropping in _dropping(model):
            dropping.layer.call = self._call(dropping, replica)

    def on_step(self) -> None:
        """After an update: the next step draws other masks."""
        self.step.assign_add(1)
        self._calls.clear()

    def dropped(self, x: tf.Tensor, dropping: Dropping, replica: int) -> tf.Tensor:
        """x after the dropout of a layer."""
        called = tf.compat.v1.get_default_graph(), dropping.name, replica, dropping.start
        call = self._calls[called]
        self._calls[called] += 1
        order = None if dropping.weights else self._order(x.shape.rank)
        words = tf.constant(random.mask_key(self.seed, dropping.name, replica), tf.int64)
        # Its own copy of the step where the mask is made: a lone number, which no layout counts.
        key = Key(words, tf.identity(self.step), tf.constant(call, tf.int64))
        return dropout(x, number(x, order, dropping.start, dropping.whole), dropping.layer.rate, key)

    def _call(self, dropping: Dropping, replica: int) -> Callable[..., tf.Tensor]:
        def call(inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
            if not (training and dropping.layer.rate):
                return inputs
            return self.dropped(inputs, dropping, _here(replica))

        return call

    def _order(self, rank: int) -> list[int] | None:
        """The axes of a tensor in PyTorch's order."""
        if rank not in self.layouts:
            return None
        own, canonical = (side.split() for side in self.layouts[rank].split("->"))
        return [own.index(axis) for axis in canonical]


class OrderedMasks:
    """Draws the masks of a user's model, which runs eagerly.

    A mask belongs to the number of the draw within the step, among those for tensors of as many elements. `axes`: of a
    tensor of this shape in the layer that is being called, the axes in PyTorch's order; None where they are that.
    """

    def __init__(self, seed: int, axes: Callable[[tuple[int, ...]], list[int] | None]):
        self.seed, self.axes, self.step = seed, axes, 0
        self._calls: Counter[str] = Counter()

    @contextmanager
    def drawn(self, layers: Iterable[tuple[str, Any]]) -> Iterator[None]:
        """Within it whatever drops by Keras's or TensorFlow's function does so. Raises UsageError for other kinds."""
        for name, layer in layers:
            if isinstance(layer, UNORDERED) and any(getattr(layer, rate, 0.0) for rate in RATES):
                raise UsageError(
                    f"{name}: {type(layer).__name__} draws masks of another kind; use keras.layers.Dropout"
                )
        with mock.patch.object(backend.random, "dropout", self._drop), mock.patch.object(tf.nn, "dropout", self._drop):
            yield

    def on_step(self) -> None:
        """After an update: the next step draws other masks."""
        self.step += 1
        self._calls.clear()

    def _drop(
        self, x: tf.Tensor, rate: float, noise_shape: Sequence[int | None] | None = None, *_: Any, **__: Any
    ) -> Any:
        if not rate:
            return x
        x = tf.convert_to_tensor(x)
        if noise_shape is None:
            return self._dropped(x, None, rate)
        sizes = [own if size is None else size for own, size in zip(x.shape, noise_shape, strict=True)]
        return self._dropped(x, tf.ones(sizes, x.dtype), rate)

    def _dropped(self, x: tf.Tensor, ones: tf.Tensor | None, rate: float) -> tf.Tensor:
        """x after the dropout of itself, or times that of the ones."""
        of = x if ones is None else ones
        name = random.mask_name(of.shape.num_elements())
        words = tf.constant(random.mask_key(self.seed, name, 0), tf.int64)
        key = Key(words, tf.constant(self.step, tf.int64), tf.constant(self._calls[name], tf.int64))
        self._calls[name] += 1
        axes = self.axes(tuple(x.shape))
        order = axes if axes and len(axes) == x.shape.rank else None
        kept = dropout(of, number(of, order), rate, key)
        return kept if ones is None else x * kept


def _here(replica: int) -> int:
    """The replica whose code is traced; `replica` where its model is its own."""
    context = tf.distribute.get_replica_context()
    if context is not None and context.num_replicas_in_sync > 1:
        return int(tf.get_static_value(context.replica_id_in_sync_group))
    return replica


def _dropping(model: keras.Model) -> Iterator[Dropping]:
    inner = set()
    for name, layer in weights.named_layers(model):
        _check(name, layer)
        if isinstance(layer, ATTENTIONS):
            parts = [part for part in layer._flatten_layers() if isinstance(part, keras.layers.Dropout)]
            inner.update(map(id, parts))
            yield from (Dropping(part, name, weights=True) for part in parts)
        elif isinstance(layer, SplitDropout):
            for i, shard in enumerate(layer.shards):
                yield Dropping(shard, name, sum(layer.sizes[:i]), sum(layer.sizes))
        elif isinstance(layer, keras.layers.Dropout) and id(layer) not in inner:
            yield Dropping(layer, name)


def _check(name: str, layer: keras.Layer) -> None:
    """Raises UsageError where a layer would draw masks of another kind."""
    draws = isinstance(layer, OTHERS) and any(getattr(layer, rate, 0.0) for rate in RATES)
    if draws or getattr(layer, "noise_shape", None) is not None:
        raise UsageError(f"{name}: {type(layer).__name__} draws masks of another kind; {SUPPORTED}")
