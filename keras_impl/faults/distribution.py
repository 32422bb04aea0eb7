"""Faults of distribution: gradients that are combined wrongly, wrong devices, processes that fail."""

import os
import time
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import keras
import tensorflow as tf

from keras_impl.instruments import devices
from keras_impl.optimizers import PyTorchClipping
from keras_impl.strategies import (
    all_reduce,
    branch_parallel,
    data_parallel,
    ddp,
    hybrid,
    send_recv,
    single,
    tensor_parallel,
)
from parity.data.batches import Dataset
from parity.selftest.mutate import Patches, replaced, together

Reduce = Callable[[Any, list], list]


# Reductions.


def _replicas() -> int:
    return tf.distribute.get_strategy().num_replicas_in_sync


def _scaled(factor: Callable[[], float]) -> Callable[[Reduce], Reduce]:
    """Multiply what an optimizer has summed over the replicas by a factor."""

    def change(reduce: Reduce) -> Reduce:
        def changed(self: Any, pairs: list) -> list:
            times = 1 if self.gradients_are_reduced else factor()
            return [(gradient * times, variable) for gradient, variable in reduce(self, pairs)]

        return changed

    return change


def _summed_in_replica(reduce: Callable) -> Callable:
    return lambda gradients: [gradient * _replicas() for gradient in reduce(gradients)]


def _summed_between_chains(reduce: Callable) -> Callable:
    def changed(chains: list, gradients: list) -> list:
        return tf.nest.map_structure(lambda gradient: gradient * len(chains), reduce(chains, gradients))

    return changed


def _unreduced(reduce: Reduce) -> Reduce:
    return lambda self, pairs: pairs


def _reduced_again(place: Callable) -> Callable:
    """Let the optimizer reduce the gradients once more."""

    def changed(*args: Any) -> tuple[keras.Model, keras.optimizers.Optimizer]:
        model, optimizer = place(*args)
        optimizer.gradients_are_reduced = False
        return model, optimizer

    return changed


def _stopped(call: Callable) -> Callable:
    """Let no gradient flow back through linear1."""

    def changed(self: keras.layers.Dense, x: tf.Tensor, training: bool | None = None) -> tf.Tensor:
        outputs = call(self, x)
        return tf.stop_gradient(outputs) + outputs * 0 if self.name == "linear1" else outputs

    return changed


def _negative(gradients: Callable) -> Callable:
    return lambda *args: [-gradient for gradient in gradients(*args)]


# Placement: correct values on wrong devices.


def _moved(place: Callable) -> Callable:
    """Put the last block on another device."""

    def changed(make_model: Any, make_optimizer: Any, devices: list[str], *args: Any, **options: Any) -> tuple:
        elsewhere = next(device for device in devices if device != devices[-1])
        return place(make_model, make_optimizer, [*devices[:-1], elsewhere], *args, **options)

    return changed


def _moved_branch(branches: Callable) -> Callable:
    """Put the first of the branches on another device."""

    def changed(model: keras.Model) -> Iterator[tuple[int, keras.Layer]]:
        (number, layer), *others = branches(model)
        yield from ((number + 1, layer), *others)

    return changed


def _backward_on_device_0(backward: Callable) -> Callable:
    """Run the backward pass on device 0, where TensorFlow runs it by default."""

    def changed(self: send_recv.Chain, *args: Any) -> tuple:
        with mock.patch.object(self, "devices", self.devices[:1] * len(self.devices)):
            return backward(self, *args)

    return changed


def _forward_alone(on: Callable) -> Callable:
    return lambda device, home, function: send_recv.under(device, function)


def _on_device_0(under: Callable) -> Callable:
    return lambda device, function: under(devices.names(1)[0], function)


# Processes.


def _in_rank_1(misbehave: Callable[[], None]) -> Patches:
    """Misbehave in rank 1 when it draws its first batch."""

    def change(steps: Callable[[Dataset], Iterator]) -> Callable[[Dataset], Iterator]:
        def drawn(self: Dataset) -> Iterator:
            if devices.rank().number == 1:
                misbehave()
            yield from steps(self)

        return drawn

    return replaced(Dataset, "steps", change)


def _raise() -> None:
    raise RuntimeError("planted in rank 1")


FAULTS: dict[str, Patches] = {
    "gradient.sum": together(
        replaced(PyTorchClipping, "_all_reduce_sum_gradients", _scaled(_replicas)),
        replaced(all_reduce, "all_reduce", _summed_in_replica),
        replaced(hybrid, "all_reduce", _summed_between_chains),
    ),
    "gradient.double_scaling": replaced(PyTorchClipping, "_all_reduce_sum_gradients", _scaled(lambda: 1 / _replicas())),
    "gradient.double_reduction": replaced(all_reduce, "place", _reduced_again),
    "gradient.unreduced": replaced(PyTorchClipping, "_all_reduce_sum_gradients", _unreduced),
    "gradient.stopped": replaced(keras.layers.Dense, "call", _stopped),
    "gradient.sign": replaced(single, "gradients", _negative),
    "batch_norm.own_buffers": replaced(ddp, "take_first_buffers", lambda take: lambda model: None),
    "batch_norm.buffers": replaced(data_parallel, "FIRST", lambda first: first + 1),
    "placement.branch": replaced(branch_parallel, "branches", _moved_branch),
    "placement.layer": together(
        replaced(send_recv, "place", _moved), replaced(branch_parallel, "branches", _moved_branch)
    ),
    "placement.backward": together(
        replaced(send_recv.Chain, "backward", _backward_on_device_0),
        replaced(branch_parallel, "on", _forward_alone),
        replaced(tensor_parallel, "on", _forward_alone),
    ),
    "placement.parameters": replaced(send_recv, "under", _on_device_0),
    "rank.raises": _in_rank_1(_raise),
    "rank.hangs": _in_rank_1(lambda: time.sleep(1e6)),
    "rank.exits": _in_rank_1(lambda: os._exit(1)),
}
