"""Mistakes planted on purpose, by name, so that tests can demand that they are found."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any
from unittest import mock

import keras
import tensorflow as tf

from keras_impl import optimizers
from keras_impl.harness import devices
from keras_impl.models.residual_block import BatchNorm2d
from keras_impl.strategies import (
    all_reduce,
    branch_parallel,
    data_parallel,
    hybrid,
    send_recv,
    tensor_parallel,
)
from parity.config import schema
from parity.data import shards
from parity.data.batches import Dataset

Patches = Callable[[], list[AbstractContextManager]]


def _constant(kind: type, name: str, value: float) -> Patches:
    """Instances of `kind` are made with another value of the named argument."""
    made = kind.__init__

    def other(self: Any, *args: Any, **kwargs: Any) -> None:
        made(self, *args, **{**kwargs, name: value})

    return lambda: [mock.patch.object(kind, "__init__", other)]


def _keras_adam() -> list[mock._patch]:
    def adam(rate: Any, beta_1: float, beta_2: float, epsilon: float, **_: Any) -> keras.optimizers.Adam:
        return keras.optimizers.Adam(rate, beta_1, beta_2, epsilon)

    return [mock.patch.object(optimizers, "Adam", adam)]


def _identity_relu() -> list[mock._patch]:
    layer = mock.patch.object(keras.layers.ReLU, "call", lambda self, x: x)
    return [layer, mock.patch.object(tf.nn, "relu", lambda x: x)]


def _rounded_dense() -> list[mock._patch]:
    def call(self: keras.layers.Dense, x: tf.Tensor, training: bool | None = None) -> tf.Tensor:
        product = tf.matmul(tf.cast(x, tf.bfloat16), tf.cast(self.kernel.value, tf.bfloat16))
        return tf.cast(product, x.dtype) + self.bias.value

    return [mock.patch.object(keras.layers.Dense, "call", call)]


@contextmanager
def _tf32() -> Iterator[None]:
    """Products on GPUs may round their factors to 10 bits."""
    tf.config.experimental.enable_tensor_float_32_execution(True)
    try:
        yield
    finally:
        tf.config.experimental.enable_tensor_float_32_execution(False)


def _summed() -> list[mock._patch]:
    """What was to be the mean over the replicas is their sum."""
    by_optimizer, by_hand, in_mesh = (
        optimizers.PyTorchClipping._all_reduce_sum_gradients,
        all_reduce.all_reduce,
        hybrid.all_reduce,
    )

    def in_optimizer(self: Any, pairs: list) -> list:
        times = 1 if self.gradients_are_reduced else tf.distribute.get_strategy().num_replicas_in_sync
        return [(gradient * times, variable) for gradient, variable in by_optimizer(self, pairs)]

    def in_replica(gradients: list[tf.Tensor]) -> list[tf.Tensor]:
        times = tf.distribute.get_strategy().num_replicas_in_sync
        return [gradient * times for gradient in by_hand(gradients)]

    def between_chains(chains: list, gradients: list) -> list:
        return tf.nest.map_structure(lambda gradient: gradient * len(chains), in_mesh(chains, gradients))

    return [
        mock.patch.object(optimizers.PyTorchClipping, "_all_reduce_sum_gradients", in_optimizer),
        mock.patch.object(all_reduce, "all_reduce", in_replica),
        mock.patch.object(hybrid, "all_reduce", between_chains),
    ]


def _rotated_shards() -> list[mock._patch]:
    """Replica 1 trains on replica 0's samples."""
    split = shards.split

    def rotated(batch: Any, case: schema.Case) -> list[shards.Indices]:
        parts = split(batch, case)
        return [parts[0], parts[0][: len(parts[1])], *parts[2:]] if len(parts) > 1 else parts

    return [mock.patch.object(shards, "split", rotated)]


def _same_epoch() -> list[mock._patch]:
    sampler = all_reduce.distributed_sampler
    return [
        mock.patch.object(
            all_reduce, "distributed_sampler", lambda size, replicas, seed, epoch: sampler(size, replicas, seed, 0)
        )
    ]


def _moved_layer() -> list[mock._patch]:
    """The last block, or the first of the branches, on another device."""
    place, branches = send_recv.place, branch_parallel.branches

    def moved(make_model: Any, make_optimizer: Any, devices: list[str], input_shape: tuple) -> tuple:
        other = next(device for device in devices if device != devices[-1])
        return place(make_model, make_optimizer, [*devices[:-1], other], input_shape)

    def moved_branch(model: keras.Model) -> Iterator[tuple[int, keras.Layer]]:
        (number, layer), *others = branches(model)
        yield from ((number + 1, layer), *others)

    return [
        mock.patch.object(send_recv, "place", moved),
        mock.patch.object(branch_parallel, "branches", moved_branch),
    ]


def _backward_on_device_0() -> list[mock._patch]:
    """As TensorFlow does it if not told: wherever the program stands."""
    backward = send_recv.Chain.backward

    def unpinned(self: send_recv.Chain, *args: Any) -> tuple:
        with mock.patch.object(self, "devices", self.devices[:1] * len(self.devices)):
            return backward(self, *args)

    return [
        mock.patch.object(send_recv.Chain, "backward", unpinned),
        mock.patch.object(branch_parallel, "on", send_recv.under),
        mock.patch.object(tensor_parallel, "on", send_recv.under),
    ]


def _clipped_replicas() -> list[mock._patch]:
    """Each replica clips its own gradients, and they are summed then."""
    clipping = optimizers.PyTorchClipping

    def clip(self: Any, gradients: list[tf.Tensor]) -> list[tf.Tensor]:
        return optimizers.clip_by_global_norm(gradients, self.global_clipnorm) if self.global_clipnorm else gradients

    reduce = keras.optimizers.SGD._all_reduce_sum_gradients
    return [
        mock.patch.object(clipping, "_clip_gradients", clip),
        mock.patch.object(clipping, "_all_reduce_sum_gradients", reduce),
    ]


def _buffers_of_replica_1() -> list[mock._patch]:
    """Every replica takes over replica 1's statistics."""
    first = data_parallel.FIRST + 1
    return [mock.patch.object(data_parallel, "FIRST", first)]


def _in_rank_1(misbehave: Callable[[], None]) -> Patches:
    """As rank 1 draws its first batch."""
    steps = Dataset.steps

    def drawn(self: Dataset) -> Iterator:
        if devices.rank().number == 1:
            misbehave()
        yield from steps(self)

    return lambda: [mock.patch.object(Dataset, "steps", drawn)]


def _raise() -> None:
    raise RuntimeError("planted in rank 1")


# Name to the patches and the only precision that they are planted at ("" for all).
FAULTS: dict[str, tuple[Patches, str]] = {
    "layer_norm.epsilon": (_constant(keras.layers.LayerNormalization, "epsilon", 1.001e-5), ""),
    "batch_norm.momentum": (_constant(BatchNorm2d, "momentum", 0.99), ""),
    "adam.epsilon_placement": (_keras_adam, ""),
    "adamw.weight_decay": (_constant(optimizers.AdamW, "decay", 0.004), ""),
    "relu.dropped_in_float32": (_identity_relu, "float32"),
    "matmul.bfloat16_in_float32": (_rounded_dense, "float32"),
    "precision.tf32": (lambda: [_tf32()], "float32"),
    "gradient.sum": (_summed, ""),
    "shard.rotated": (_rotated_shards, ""),
    "sampler.epoch": (_same_epoch, ""),
    "placement.layer": (_moved_layer, ""),
    "placement.backward": (_backward_on_device_0, ""),
    "clip.before_reduction": (_clipped_replicas, ""),
    "batch_norm.buffers": (_buffers_of_replica_1, ""),
    "rank.raises": (_in_rank_1(_raise), ""),
    "rank.hangs": (_in_rank_1(lambda: time.sleep(1e6)), ""),
    "rank.exits": (_in_rank_1(lambda: os._exit(1)), ""),
}


@contextmanager
def planted(fault: str, at: str) -> Iterator[None]:
    """The fault, if it is one of this precision, for the length of the block; none if it is ""."""
    patches, only = FAULTS[fault] if fault else (list, "")
    with ExitStack() as stack:
        if only in ("", at):
            for patch in patches():
                stack.enter_context(patch)
        yield
