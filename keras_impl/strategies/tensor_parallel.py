"""Tensor parallelism: pairs of Dense layers split over the devices (Shoeybi et al. 2019, Megatron-LM).

The first layer of a pair (`linear1`) is split by output features (columns of the kernel), the second (`linear2`) by
input features (rows). So each device goes from its columns to its part of the output without the other devices, and the
parts are summed. Everything else is on the first device.
"""

import math
from collections.abc import Callable

import keras
import tensorflow as tf

from keras_impl.models.perceptrons import SimpleBlock
from keras_impl.strategies import single
from keras_impl.strategies.branch_parallel import on
from keras_impl.strategies.send_recv import under
from keras_impl.strategies.single import MakeModel, MakeOptimizer, Placed, evaluate, train

__all__ = ["evaluate", "place", "train"]


def place(make_model: MakeModel, make_optimizer: MakeOptimizer, devices: list[str], input_shape: tuple) -> Placed:
    """Build the model, with the shards of its layer pairs on their devices, and its optimizer."""

    def make_split() -> keras.Model:
        model = make_model()
        if isinstance(model, SimpleBlock):
            model.call = split(model, lambda number, x, training: model.relu(x), devices)
        else:
            for layer in (*model.transformer.encoder.blocks, *model.transformer.decoder.blocks):
                layer.feed_forward = split_feed_forward(layer, devices)
        return model

    return single.place(make_split, make_optimizer, devices, input_shape)


def split_feed_forward(layer: keras.Layer, devices: list[str]) -> Callable[..., tf.Tensor]:
    """Replace a feed-forward part's layers by shards on all devices; return the function that computes them."""
    untrack(layer, layer.dropout)
    layer.dropout = dropout = SplitDropout(layer.dropout.rate, layer.linear1.units, devices, name="dropout")

    def between(number: int, x: tf.Tensor, training: bool) -> tf.Tensor:
        return dropout.shards[number](tf.nn.relu(x), training=training)

    return split(layer, between, devices)


def split(owner: keras.Layer, between: Callable, devices: list[str]) -> Callable[..., tf.Tensor]:
    """Replace `owner.linear1` and `owner.linear2` by shards on all devices.

    Returns the function that computes linear1, `between` and linear2. `between(number, x, training)` also gets the
    number of the device whose shard it is called with.
    """
    hidden, units = owner.linear1.units, owner.linear2.units
    untrack(owner, owner.linear1, owner.linear2)
    owner.linear1 = column = ColumnParallel(hidden, devices, name="linear1")
    owner.linear2 = row = RowParallel(units, hidden, devices, name="linear2")

    def shard(number: int) -> Callable[..., tf.Tensor]:
        def compute(x: tf.Tensor, training: bool) -> tf.Tensor:
            return row.shards[number](between(number, column.shards[number](x), training))

        return on(devices[number], devices[0], compute)

    shards = [shard(number) for number in range(len(column.shards))]
    return lambda x, training=False: row([compute(x, training=training) for compute in shards])


def untrack(owner: keras.Layer, *replaced: keras.Layer) -> None:
    """Make Keras forget replaced layers; it keeps every layer once assigned, and has no public way to remove one."""
    for layer in replaced:
        owner._tracker.untrack(layer)


def shard_sizes(units: int, parts: int) -> list[int]:
    """Split `units` as torch.chunk does.

    All shards have the same size, rounded up, except the last; there may be fewer than `parts`.
    """
    size = math.ceil(units / parts)
    return [min(size, units - start) for start in range(0, units, size)]


class ColumnParallel(keras.layers.Layer):
    """A Dense layer whose output features are split over the devices."""

    def __init__(self, units: int, devices: list[str], name: str):
        super().__init__(name=name)
        self.units = units
        self.shards = [
            keras.layers.Dense(size, name=f"shard{i}") for i, size in enumerate(shard_sizes(units, len(devices)))
        ]
        for shard, device in zip(self.shards, devices, strict=False):
            shard.build = under(device, shard.build)

    def build(self, input_shape: tuple) -> None:
        for shard in self.shards:
            shard.build(input_shape)


class SplitDropout(keras.layers.Layer):
    """Dropout of features that are split over the devices: each device drops in its own part."""

    def __init__(self, rate: float, units: int, devices: list[str], name: str):
        super().__init__(name=name)
        self.sizes = shard_sizes(units, len(devices))
        self.shards = [keras.layers.Dropout(rate, name=f"shard{i}") for i in range(len(self.sizes))]


class RowParallel(keras.layers.Layer):
    """A Dense layer whose input features are split over the devices."""

    def __init__(self, units: int, inputs: int, devices: list[str], name: str):
        super().__init__(name=name)
        self.units = units
        self.sizes = shard_sizes(inputs, len(devices))
        self.shards = [keras.layers.Dense(units, use_bias=False, name=f"shard{i}") for i in range(len(self.sizes))]
        for shard, device in zip(self.shards, devices, strict=False):
            shard.build = under(device, shard.build)

    def build(self, input_shape: tuple) -> None:
        self.bias = self.add_weight(shape=(self.units,), initializer="zeros", name="bias")
        for shard, size in zip(self.shards, self.sizes, strict=True):
            shard.build((*input_shape[:-1], size))

    def call(self, parts: list[tf.Tensor]) -> tf.Tensor:
        """Sum what each device computed, and add the bias once."""
        return tf.add_n(parts) + self.bias.value
