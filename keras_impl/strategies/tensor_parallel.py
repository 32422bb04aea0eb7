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
            model.call = split(model, model.relu, devices)
        else:
            for layer in (*model.transformer.encoder.blocks, *model.transformer.decoder.blocks):
                layer.feed_forward = split(layer, tf.nn.relu, devices)
        return model

    return single.place(make_split, make_optimizer, devices, input_shape)


def split(owner: keras.Layer, between: Callable, devices: list[str]) -> Callable[..., tf.Tensor]:
    """What linear1, `between` and linear2 of `owner` compute, on all devices; both layers are replaced."""
    hidden, units = owner.linear1.units, owner.linear2.units
    for replaced in (owner.linear1, owner.linear2):
        owner._tracker.untrack(replaced)  # Keras keeps what an attribute has named once, and has no public way out
    owner.linear1 = column = ColumnParallel(hidden, devices, name="linear1")
    owner.linear2 = row = RowParallel(units, hidden, devices, name="linear2")

    def shard(number: int) -> Callable[..., tf.Tensor]:
        return on(devices[number], lambda x: row.shards[number](between(column.shards[number](x))))

    shards = [shard(number) for number in range(len(column.shards))]
    return lambda x, training=False: row([compute(x) for compute in shards])


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
