"""Faults of distribution: gradients that are combined wrongly, wrong devices, processes that fail."""

import os
import time
from collections.abc import Callable, Iterator
from functools import partial
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
from parity.selftest.mutate import Patches, replaced, together, wrapped

Reduce = Callable[..., list]


# Reductions.


def _replicas() -> int:
    return tf.distribute.get_strategy().num_replicas_in_sync


def _scaled(factor: Callable[[], float], reduce: Reduce, optimizer: Any, pairs: list) -> list:
    """Multiply what an optimizer has summed over the replicas by a factor."""
    times = 1 if optimizer.gradients_are_reduced else factor()
    return [(gradient * times, variable) for gradient, variable in reduce(optimizer, pairs)]


def _summed_in_replica(reduce: Reduce, gradients: list) -> list:
    return [gradient * _replicas() for gradient in reduce(gradients)]


def _summed_between_chains(reduce: Reduce, chains: list, gradients: list) -> list:
    return tf.nest.map_structure(lambda gradient: gradient * len(chains), reduce(chains, gradients))


def _reduced_again(place: Callable, *args: Any) -> tuple[keras.Model, keras.optimizers.Optimizer]:
    """Let the optimizer reduce the gradients once more."""
    model, optimizer = place(*args)
    optimizer.gradients_are_reduced = False
    return model, optimizer


def _stopped(call: Callable, layer: keras.layers.Dense, x: tf.Tensor, training: bool | None = None) -> tf.Tensor:
    """Let no gradient flow back through linear1."""
    outputs = call(layer, x)
    return tf.stop_gradient(outputs) + outputs * 0 if layer.name == "linear1" else outputs


def _negative(gradients: Callable, *args: Any) -> list[tf.Tensor]:
    return [-gradient for gradient in gradients(*args)]


# Placement: correct values on wrong devices.


def _moved(place: Callable, make_model: Any, make_optimizer: Any, devices: list[str], *args: Any, **kw: Any) -> tuple:
    """Put the last block on another device."""
    elsewhere = next(device for device in devices if device != devices[-1])
    return place(make_model, make_optimizer, [*devices[:-1], elsewhere], *args, **kw)


def _moved_branch(branches: Callable, model: keras.Model) -> Iterator[tuple[int, keras.Layer]]:
    """Put the first of the branches on another device."""
    (number, layer), *others = branches(model)
    yield from ((number + 1, layer), *others)


def _backward_on_device_0(backward: Callable, chain: send_recv.Chain, *args: Any) -> tuple:
    """Run the backward pass on device 0, where TensorFlow runs it by default."""
    with mock.patch.object(chain, "devices", chain.devices[:1] * len(chain.devices)):
        return backward(chain, *args)


def _forward_alone(device: str, home: str, function: Callable) -> Any:
    return send_recv.under(device, function)


def _on_device_0(under: Callable, device: str, function: Callable) -> Any:
    return under(devices.names(1)[0], function)


# Processes.


def _in_rank_1(misbehave: Callable[[], None]) -> Patches:
    """Misbehave in rank 1 when it draws its first batch."""

    def drawn(steps: Callable[[Dataset], Iterator], data: Dataset) -> Iterator:
        if devices.rank().number == 1:
            misbehave()
        yield from steps(data)

    return wrapped(Dataset, "steps", drawn)


def _raise() -> None:
    raise RuntimeError("planted in rank 1")


def _reduction(function: Reduce) -> Patches:
    return wrapped(PyTorchClipping, "_all_reduce_sum_gradients", function)


FAULTS: dict[str, Patches] = {
    "gradient.sum": together(
        _reduction(partial(_scaled, _replicas)),
        wrapped(all_reduce, "all_reduce", _summed_in_replica),
        wrapped(hybrid, "all_reduce", _summed_between_chains),
    ),
    "gradient.double_scaling": _reduction(partial(_scaled, lambda: 1 / _replicas())),
    "gradient.double_reduction": wrapped(all_reduce, "place", _reduced_again),
    "gradient.unreduced": _reduction(lambda reduce, optimizer, pairs: pairs),
    "gradient.stopped": wrapped(keras.layers.Dense, "call", _stopped),
    "gradient.sign": wrapped(single, "gradients", _negative),
    "batch_norm.own_buffers": replaced(ddp, "take_first_buffers", lambda model: None),
    "batch_norm.buffers": replaced(data_parallel, "FIRST", data_parallel.FIRST + 1),
    "placement.branch": wrapped(branch_parallel, "branches", _moved_branch),
    "placement.layer": together(
        wrapped(send_recv, "place", _moved), wrapped(branch_parallel, "branches", _moved_branch)
    ),
    "placement.backward": together(
        wrapped(send_recv.Chain, "backward", _backward_on_device_0),
        replaced(branch_parallel, "on", _forward_alone),
        replaced(tensor_parallel, "on", _forward_alone),
    ),
    "placement.parameters": wrapped(send_recv, "under", _on_device_0),
    "rank.raises": _in_rank_1(_raise),
    "rank.hangs": _in_rank_1(partial(time.sleep, 1e6)),
    "rank.exits": _in_rank_1(partial(os._exit, 1)),
}
