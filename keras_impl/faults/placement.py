"""Faults of placement: correct values on wrong devices."""

from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import keras

from keras_impl.faults.mutate import Patches, replaced, together
from keras_impl.instruments import devices
from keras_impl.strategies import branch_parallel, send_recv, tensor_parallel


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


FAULTS: dict[str, Patches] = {
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
}
