"""Device names on their way into PyTorch: "cuda:1", torch.device("cuda", 1) and 1 become a virtual device.

Covers all that accepts `device=` or uses a default device: functions that make tensors, the default, torch.Generator.
"""

import functools
import re
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._device import DeviceContext, _device_constructors

from parity.core.patches import Original, wrapping
from torch_impl.instruments.virtual_devices import TYPE, Machine, VirtualDevices

CALLED = "cuda"  # what the program calls the virtual devices
_Device, _Generator = torch.device, torch.Generator
_FROM_DATA = (torch.tensor, torch.as_tensor, torch.asarray)
_FACTORIES = frozenset(_device_constructors())  # asked before patching: torch caches the functions that it finds


def patches(machine: Machine) -> Iterator[tuple[Any, str, Any]]:
    """Yield what is replaced: owner, name, value."""
    for function in _FACTORIES:
        if getattr(torch, function.__name__, None) is function:
            yield torch, function.__name__, wrapping(_made, function, machine)
    default = torch.get_default_device
    yield torch, "get_default_device", lambda: machine.name(default())
    yield torch, "Generator", _generators(machine)
    device = staticmethod(functools.partial(_device, machine))
    yield torch, "device", StandIn("device", (), {"__module__": "torch", "make": device, "original": _Device})
    yield torch._C._nn, "_parse_to", wrapping(placed, torch._C._nn._parse_to, machine, 0)
    yield DeviceContext, "__init__", wrapping(placed, DeviceContext.__init__, machine, 1)
    yield DeviceContext, "__torch_function__", _in_context


class StandIn(type):
    """What a class of PyTorch's is replaced by: it is called through `make`, and has the instances of `original`."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return cls.make(*args, **kwargs)

    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, cls.original)


def _device(machine: Machine, *args: Any, **kwargs: Any) -> torch.device:
    """Return a torch.device, also of a number alone."""
    is_number = len(args) == 1 and not kwargs and isinstance(args[0], int)
    return _Device(machine.called, args[0]) if is_number else _Device(*args, **kwargs)


def located(machine: Machine, device: Any) -> Any:
    """Return the virtual device that "cuda", a torch.device or a number means; anything else unchanged."""
    if isinstance(device, str):
        return machine.place(_Device(device)) if device.startswith(machine.called) else device
    if isinstance(device, int) and not isinstance(device, bool):
        return machine.place(_Device(machine.called, device))
    return machine.place(device) if isinstance(device, _Device) else device


def name(device: Any) -> str:
    """Return a device's name, or a text with names of devices, as the user knows them: "cuda:1" for lazy:1."""
    if isinstance(device, torch.device) and device.index is None:
        device = VirtualDevices.machine.place(device)  # without an index it means the current device
    text = re.sub(r"Lazy(\w+)Type\b", rf"torch.{CALLED}.\1Tensor", str(device))
    return re.sub(rf"\b{TYPE}\b", CALLED, text)


def placed(function: Original, machine: Machine, at: int | None, /, *args: Any, **kwargs: Any) -> Any:
    """Call a function whose argument `device`, and the one at position `at` if any, become virtual devices."""
    if kwargs.get("device") is not None:
        kwargs["device"] = located(machine, kwargs["device"])
    return function(*(located(machine, argument) if i == at else argument for i, argument in enumerate(args)), **kwargs)


def _made(function: Original, machine: Machine, /, *args: Any, **kwargs: Any) -> torch.Tensor:
    """Call a function that makes a tensor, which may be on a virtual device or in pinned memory."""
    pinned = kwargs.pop("pin_memory", False)
    result = placed(_on_devices(function), machine, None, *args, **kwargs)
    return result.pin_memory() if pinned else result


def _on_devices(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Return a function that makes a tensor as one that can do so on virtual devices."""
    # torch.tensor and its like copy to the device in C++, which the dispatch mode does not see.
    return functools.partial(_from_data, function) if function in _FROM_DATA else function


def _from_data(
    function: Original, /, *args: Any, device: Any = None, requires_grad: bool = False, **kwargs: Any
) -> torch.Tensor:
    result = function(*args, **kwargs)
    result = result if device is None else result.to(device)
    return result.requires_grad_() if requires_grad else result


def _in_context(self: DeviceContext, function: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
    """Do what torch's default-device mode does, also for the functions that are replaced here."""
    kwargs = kwargs or {}
    if function in _FACTORIES and kwargs.get("device") is None:
        return _on_devices(function)(*args, **{**kwargs, "device": self.device})
    return function(*args, **kwargs)


def _generators(machine: Machine) -> type:
    """Return a replacement of torch.Generator that draws on the physical device for virtual ones."""

    def new(kind: type, device: Any = "cpu") -> torch.Generator:
        located_at = _Device(located(machine, device))
        return _Generator.__new__(kind, machine.physical if located_at.type == TYPE else located_at)

    return type("Generator", (_Generator,), {"__new__": new})
