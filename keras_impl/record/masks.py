"""Dropout masks that both frameworks draw alike: in training, all dropout takes its masks from the shared source.

In a user's model its other random numbers do as well, also in evaluation (instruments/noise.py).

A training step is traced once and executed often. So the number of the step is a variable, and the calls of a layer
within a step are counted while it is traced. Each replica is traced separately.
"""

import itertools
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from numbers import Integral
from typing import Any, NamedTuple
from unittest import mock

import keras
import numpy as np
import tensorflow as tf
from keras.src import backend
from keras.src.models.functional import Functional
from keras.src.random.seed_generator import draw_seed

from keras_impl.dropout import Key, dropout, number, words
from keras_impl.instruments import devices, noise
from keras_impl.models.transformer import MultiheadAttention
from keras_impl.record import calls, tree
from keras_impl.record.canonical import module_path
from keras_impl.strategies.tensor_parallel import SplitDropout
from parity.core import random
from parity.core.errors import UsageError
from parity.core.patches import applied
from parity.data.masks import Draws
from parity.pairs.weights.layouts import Unfolded
from parity.trace.keys import MODEL

SUPPORTED = (
    "masks shared by both frameworks are available for keras.layers.Dropout and MultiHeadAttention, without noise_shape"
)
RATES = ("rate", "dropout", "recurrent_dropout", "stddev")
# Layers that do not draw their masks through keras.random.dropout, or draw them in another order than PyTorch does.
UNORDERED = (
    keras.layers.AlphaDropout,
    keras.layers.RNN,
    keras.layers.SimpleRNNCell,
    keras.layers.LSTMCell,
    keras.layers.GRUCell,
)
# Layers whose masks no built-in model of PyTorch's draws.
OTHERS = (
    *UNORDERED,
    keras.layers.GaussianDropout,
    keras.layers.GaussianNoise,
    keras.layers.SpatialDropout1D,
    keras.layers.SpatialDropout2D,
    keras.layers.SpatialDropout3D,
    keras.layers.Attention,
    keras.layers.AdditiveAttention,
)
NoiseShape = Sequence[int | None] | None
Order = list[int] | Unfolded
ATTENTIONS = (MultiheadAttention, keras.layers.MultiHeadAttention, keras.layers.GroupQueryAttention)


class Dropping(NamedTuple):
    """A layer that drops, in one replica or in all.

    `name` is that of the PyTorch module that drops in its place. If its input is a part of the last axis of a whole
    tensor, the part begins at `start` and the axis has `whole` elements. `weights` says that the input is an
    attention's weights, whose axes have the same order in both frameworks.
    """

    layer: keras.layers.Dropout
    name: str
    start: int = 0
    whole: int | None = None
    weights: bool = False


class Masks:
    """Draws one run's dropout masks; `layouts`: by number of axes, the change from the model's order to PyTorch's."""

    def __init__(self, seed: int, layouts: dict[int, str]):
        self.seed, self.layouts = seed, layouts
        with tf.device("CPU:0"):
            self.step = tf.Variable(0, trainable=False, dtype=tf.int64)
        self._calls: Counter[tuple] = Counter()

    def attach(self, model: keras.Model, replica: int) -> None:
        """Let the model's layers draw shared masks from now on. Raises UsageError for one that drops in another way."""
        for dropping in _dropping(model):
            dropping.layer.call = self._call(dropping, replica)

    def on_step(self) -> None:
        """Move on to the next step, which draws other masks; called after each update."""
        self.step.assign_add(1)
        self._calls.clear()

    def dropped(self, x: tf.Tensor, dropping: Dropping, replica: int) -> tf.Tensor:
        """Return x after the dropout of a layer."""
        caller = tf.compat.v1.get_default_graph(), dropping.name, replica, dropping.start
        call = self._calls[caller]
        self._calls[caller] += 1
        order = None if dropping.weights else self._order(x.shape.rank)
        words = tf.constant(random.mask_key(self.seed, dropping.name, replica), tf.int64)
        # Read the step on the device that makes the mask: copying a scalar does not count as a transfer in the layout.
        key = Key(words, tf.identity(self.step), tf.constant(call, tf.int64))
        return dropout(x, number(x, order, dropping.start, dropping.whole), dropping.layer.rate, key)

    def _call(self, dropping: Dropping, replica: int) -> Callable[..., tf.Tensor]:
        def call(inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
            if not (training and dropping.layer.rate):
                return inputs
            return self.dropped(inputs, dropping, devices.replica(replica))

        return call

    def _order(self, rank: int) -> list[int] | None:
        """Return the axes of a tensor in PyTorch's order, or None if they are in it already."""
        if rank not in self.layouts:
            return None
        own, canonical = (side.split() for side in self.layouts[rank].split("->"))
        return [own.index(axis) for axis in canonical]


class OrderedMasks(Draws):
    """Draws the dropout masks of a user's model, which runs eagerly, or is `traced` once and executed often.

    A mask is identified by the number of its draw within the step, counted among tensors with the same number of
    elements. `axes(shape)` returns, for a tensor in the layer that is being called, its axes in PyTorch's order, also
    of an image that is flattened, or None if they are in it already.
    """

    def __init__(self, seed: int, axes: Callable[[tuple[int, ...]], Order | None], traced: bool = False):
        super().__init__(seed)
        self.axes, self._of_attention = axes, frozenset[str]()  # the layers whose tensors have PyTorch's order of axes
        self._step = tf.Variable(np.int64(0), trainable=False) if traced else None

    @contextmanager
    def drawn(self, model: Any, training: bool = True) -> Iterator[None]:
        """Let all that calls Keras's or TensorFlow's dropout function draw shared masks within the block.

        Raises UsageError for a layer that drops in another way in training.
        """
        named = tree.named(model)
        attentions = tuple(f"{name}/" for name, layer in named.items() if isinstance(layer, ATTENTIONS))
        self._of_attention = frozenset(name for name in named if name.startswith(attentions))
        for name, layer in named.items() if training else ():
            _check(name, layer, UNORDERED, "use keras.layers.Dropout")
        with (
            _as_written(named.values()),
            mock.patch.object(backend.random, "dropout", self._of_keras),
            mock.patch.object(tf.nn, "dropout", self._of_tensorflow),
            mock.patch.object(tf.nn.experimental, "stateless_dropout", self._stateless),
            applied(noise.patches(self._numbers)),
        ):
            yield

    def on_step(self) -> None:
        """Move on to the next step, which draws other masks; called after each update."""
        super().on_step()
        if self._step is not None:
            self._step.assign(self.step)

    def _of_keras(self, x: tf.Tensor, rate: float, noise_shape: NoiseShape = None, seed: Any = None) -> Any:
        """Replace Keras's dropout, whose masks a whole number as seed makes the same in every call."""
        return self._drop(x, rate, noise_shape, None if seed is None else _numbers_of(draw_seed(seed)))

    def _of_tensorflow(
        self, x: tf.Tensor, rate: float, noise_shape: NoiseShape = None, seed: int | None = None, name: Any = None
    ) -> Any:
        """Replace tf.nn.dropout: in a graph, which `fit` makes of a step, its ops of the same seed draw alike."""
        return self._drop(x, rate, noise_shape, self._state(seed))

    def _stateless(
        self,
        x: tf.Tensor,
        rate: float,
        seed: Any,
        rng_alg: Any = None,
        noise_shape: NoiseShape = None,
        name: Any = None,
    ) -> Any:
        return self._drop(x, rate, noise_shape, self._state(seed))

    def _drop(self, x: tf.Tensor, rate: float, noise_shape: NoiseShape, state: Hashable) -> Any:
        """Return x after dropout; a noise_shape draws one bit for several; `state`: the user's generator's, or None."""
        if not rate:
            return x
        x = tf.convert_to_tensor(x)
        if noise_shape is None:
            return self._dropped(x, rate, state, tuple(x.shape))
        sizes = [own if size is None else size for own, size in zip(x.shape, noise_shape, strict=True)]
        return x * self._dropped(tf.ones(sizes, x.dtype), rate, state, tuple(x.shape))

    def _dropped(self, x: tf.Tensor, rate: float, state: Hashable, shape: tuple[int, ...]) -> tf.Tensor:
        """Return x after dropout; `shape` as in `_ordered`."""
        of, key = self._ordered(random.UNIFORM, x, state, shape)
        return dropout(x, of, rate, key)

    def _state(self, seed: Any) -> Hashable:
        """Return what makes TensorFlow's draws alike: a whole number those of a step, a tensor all of its numbers."""
        if isinstance(seed, Integral):
            return seed, self.step, self.repeats
        return None if seed is None else _numbers_of(tf.convert_to_tensor(seed))

    def _numbers(self, kind: str, x: tf.Tensor, seed: Any) -> tf.Tensor:
        """Return random numbers of a kind for the elements of a tensor that was drawn with a seed, or with none."""
        of, key = self._ordered(kind, x, self._state(seed), tuple(x.shape))
        return noise.numbers(kind, of, lambda each: words(each, key))

    def _ordered(self, kind: str, x: tf.Tensor, state: Hashable, shape: tuple[int, ...]) -> tuple[tf.Tensor, Key]:
        """Return what identifies the elements of a tensor, and the next draw for tensors of its size.

        `shape` is that of a tensor with the same axes, in the layer that is being called.
        """
        where = calls.innermost() or MODEL
        start, size = self._extent(x.shape.num_elements(), where)
        name = random.mask_name(size, kind)
        words, draw = tf.constant(random.mask_key(self.seed, name, 0), tf.int64), self._next(name)
        if state is not None:
            draw = self.repeats.first((name, state), draw, where)
        key = Key(words, *(tf.constant(number, tf.int64) for number in draw))
        if self._step is not None and not tf.executing_eagerly():
            key = key._replace(step=tf.identity(self._step))
        axes = None if where in self._of_attention else self.axes(shape)
        if isinstance(axes, Unfolded) and tuple(x.shape) == shape:
            image = tf.reshape(x, (-1, *axes.sizes))
            return tf.reshape(number(image, [0, *(1 + axis for axis in axes.order)]), tf.shape(x)) + start, key
        return number(x, axes if isinstance(axes, list) and len(axes) == x.shape.rank else None) + start, key


@contextmanager
def _as_written(layers: Iterable[Any]) -> Iterator[None]:
    """Let functional models run their layers in the order in which the user's code called them, as PyTorch does.

    Keras runs them by their distance from the outputs, so that a branch may drop before one that was written first. A
    tensor of Keras's has a number that counts up; where these numbers are no order to run in, or nothing is drawn,
    Keras's order stays.
    """
    every = list(layers)
    draws = any(hasattr(layer, "seed_generator") for layer in every)
    with ExitStack() as stack:
        for model in every if draws else ():
            if not isinstance(model, Functional):
                continue
            nodes = sorted(itertools.chain.from_iterable(model._nodes_by_depth.values()), key=_number)
            made = {id(x) for x in model.inputs}
            for node in nodes:
                if not node.is_input and not made.issuperset(map(id, node.input_tensors)):
                    break
                made.update(map(id, node.outputs))
            else:
                by_depth = {-place: [node] for place, node in enumerate(nodes)}
                stack.enter_context(mock.patch.dict(vars(model), _nodes_by_depth=by_depth))
        yield


def _number(node: Any) -> int:
    """Return the number of the first tensor that a node makes, or -1 for an input, which may have a name."""
    match = re.fullmatch(r"keras_tensor(?:_(\d+))?", node.outputs[0].name) if node.outputs else None
    return int(match[1] or 0) if match and not node.is_input else -1


def _numbers_of(seed: Any) -> Hashable:
    """Return the numbers that a generator gives to a draw; None in a graph, which does not know them."""
    return tuple(seed.numpy().tolist()) if hasattr(seed, "numpy") else None


def _dropping(model: keras.Model) -> Iterator[Dropping]:
    """Yield the layers of a model that drop.

    Dropout within an attention layer is named after that layer, as in PyTorch, where it is no module. Raises UsageError
    for a layer that drops in another way.
    """
    inner = set()
    for path, layer in tree.named(model).items():
        name = module_path(path)
        _check(name, layer, OTHERS, SUPPORTED, getattr(layer, "noise_shape", None) is not None)
        if isinstance(layer, ATTENTIONS):
            parts = [part for part in tree.named(layer).values() if isinstance(part, keras.layers.Dropout)]
            inner.update(map(id, parts))
            yield from (Dropping(part, name, weights=True) for part in parts)
        elif isinstance(layer, SplitDropout):
            for i, shard in enumerate(layer.shards):
                yield Dropping(shard, name, sum(layer.sizes[:i]), sum(layer.sizes))
        elif isinstance(layer, keras.layers.Dropout) and id(layer) not in inner:
            yield Dropping(layer, name)


def _check(name: str, layer: keras.Layer, kinds: tuple[type, ...], advice: str, is_refused: bool = False) -> None:
    """Raise UsageError if a layer of these kinds, or one that `is_refused`, would draw masks of another kind."""
    if is_refused or (isinstance(layer, kinds) and any(getattr(layer, rate, 0.0) for rate in RATES)):
        raise UsageError(f"{name}: {type(layer).__name__} draws masks of another kind than PyTorch's dropout; {advice}")
