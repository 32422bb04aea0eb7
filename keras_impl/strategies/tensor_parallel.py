"""Pairs of Dense layers split over devices (Shoeybi et al. 2019, Megatron-LM).

The first layer's kernel is cut by columns, the second one's by rows, so that a device goes from its
columns to its part of the output without the others; the parts are added up. All else is on the first
device.
"""

import math
from collections.abc import Callable

import keras
import tensorflow as tf

from keras_impl.models.simple_block import SimpleBlock
from keras_impl.strategies import single
from keras_impl.strategies.branch_parallel import on
from keras_impl.strategies.send_recv import under
from keras_impl.strategies.single import MakeModel, MakeOptimizer, evaluate, train

__all__ = ["evaluate", "place", "train"]


def place(
    make_model: MakeModel,
    make_optimizer: MakeOptimizer,
    devices: list[str],
    input_shape: tuple,
) -> tuple[keras.Model, keras.optimizers.Optimizer]:
    """A model, built, the shards of its pairs on their devices, and its optimizer."""

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
    """A transformer layer's feed_forward, on all devices; its layers are replaced."""
    untrack(layer, layer.dropout)
    layer.dropout = dropout = SplitDropout(layer.dropout.rate, layer.linear1.units, devices, name="dropout")

    def between(number: int, x: tf.Tensor, training: bool) -> tf.Tensor:
        return dropout.shards[number](tf.nn.relu(x), training=training)

    return split(layer, between, devices)


def split(owner: keras.Layer, between: Callable, devices: list[str]) -> Callable[..., tf.Tensor]:
    """What linear1, `between` and linear2 of `owner` compute, on all devices; both layers are replaced.

    `between` is told which device's part it is called with.
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
    """Let go of layers: Keras keeps what an attribute has named once, and has no public way out."""
    for layer in replaced:
        owner._tracker.untrack(layer)


def shard_sizes(units: int, parts: int) -> list[int]:
    """As torch.chunk cuts: all of the same size, rounded up, but the last; there may be fewer than `parts`."""
    size = math.ceil(units / parts)
    return [min(size, units - start) for start in range(0, units, size)]


class ColumnParallel(keras.layers.Layer):
    """A Dense layer whose units are spread over the devices."""

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
    """Dropout of features that are spread over the devices: each drops its own part."""

    def __init__(self, rate: float, units: int, devices: list[str], name: str):
        super().__init__(name=name)
        self.sizes = shard_sizes(units, len(devices))
        self.shards = [keras.layers.Dropout(rate, name=f"shard{i}") for i in range(len(self.sizes))]


class RowParallel(keras.layers.Layer):
    """A Dense layer whose inputs are spread over the devices."""

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
        """From what each device computed; the bias is added once."""
        return tf.add_n(parts) + self.bias.value
