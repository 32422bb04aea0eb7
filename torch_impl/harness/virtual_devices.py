"""Any number of devices on a machine that has none: tensors that say `lazy:i` and compute elsewhere.

A VirtualTensor wraps a real tensor, computes with it, and refuses to be mixed with tensors of other
devices, as CUDA's do. Autograd, modules and optimizers run on it as they are. `lazy` is a device type
that torch knows and no backend of a plain build uses.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch
from torch.nn import Module, functional
from torch.utils._python_dispatch import TorchDispatchMode

TYPE = "lazy"
COPIES = {torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default}
# What torch.autocast casts, of what is used here (docs.pytorch.org/docs/stable/amp.html, op eligibility):
# to the lower precision, and to float32.
LOWER = ("linear", "conv2d", "scaled_dot_product_attention")
FLOAT32 = {"cpu": ("mse_loss", "cross_entropy"), "cuda": ("mse_loss", "cross_entropy", "layer_norm")}


class VirtualTensor(torch.Tensor):
    """`inner`, said to be on `device`."""

    @staticmethod
    def __new__(cls, inner: torch.Tensor, device: torch.device) -> "VirtualTensor":
        return torch.Tensor._make_wrapper_subclass(
            cls,
            inner.size(),
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            layout=inner.layout,
            device=device,
        )

    def __init__(self, inner: torch.Tensor, device: torch.device):
        self.inner = inner

    def __repr__(self) -> str:
        return f"VirtualTensor({self.inner}, device='{self.device}')"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        return _compute(func, args, kwargs or {})


class VirtualDevices(TorchDispatchMode):
    """Within it, tensors can be made on virtual devices and copied to them. `physical`: what computes."""

    physical = torch.device("cpu")

    def __init__(self, physical: torch.device):
        super().__init__()
        self._before, VirtualDevices.physical = VirtualDevices.physical, physical

    def __exit__(self, *error: Any) -> None:
        VirtualDevices.physical = self._before
        super().__exit__(*error)

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        return _compute(func, args, kwargs or {})


@contextmanager
def virtual_devices(physical: torch.device) -> Iterator[None]:
    """Virtual devices `lazy:i`, as many as are asked for, and nn.DataParallel on them.

    nn.DataParallel itself is as it is. Replaced is what it has from CUDA: which type of device there
    is, its three copying functions in C++ (which a CPU build lacks), and the threads that give each
    replica a stream of its own. torch.autocast passes virtual tensors over: its casts are made here.
    """
    module = sys.modules["torch.nn.parallel.data_parallel"]  # torch.nn.parallel's attribute is a function
    patches = [
        mock.patch.object(module, "_get_available_device_type", lambda: TYPE),
        mock.patch.object(module, "parallel_apply", _one_after_the_other),
        mock.patch.object(torch._C, "_scatter", _scatter, create=True),
        mock.patch.object(torch._C, "_gather", _gather, create=True),
        mock.patch.object(torch._C, "_broadcast_coalesced", _broadcast, create=True),
    ]
    for name in (*LOWER, *FLOAT32[physical.type]):
        cast = _autocast(getattr(functional, name), physical.type, lower=name in LOWER)
        patches.append(mock.patch.object(functional, name, cast))
    with ExitStack() as stack:
        for patch in patches:
            stack.enter_context(patch)
        stack.enter_context(VirtualDevices(physical))
        yield


def _compute(func: Callable[..., Any], args: tuple, kwargs: dict) -> Any:
    """Run an op on the real tensors, and say that its results are where its arguments are."""
    given: dict[int, torch.Tensor] = {}  # by the real tensor: an op in place returns its argument

    def real(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        inner = value.inner if isinstance(value, VirtualTensor) else value
        given[id(inner)] = value
        return inner

    here, named = _mapped(real, args), {name: _mapped(real, value) for name, value in kwargs.items()}
    device = kwargs.get("device")
    if device is not None:
        named["device"] = VirtualDevices.physical if device.type == TYPE else device
    elif func in COPIES:
        device = args[0].device
    else:
        device = _common_device(given.values())
    results = func(*here, **named)
    if device.type != TYPE:
        return results

    def virtual(result: Any) -> Any:
        if not isinstance(result, torch.Tensor):
            return result
        same = given.get(id(result))
        if same is not None and same.device == device:
            return same
        # What is on another device now must not share memory with what it was copied from.
        return VirtualTensor(result.clone() if same is not None else result, device)

    return _mapped(virtual, results)


def _mapped(function: Callable[[Any], Any], value: Any) -> Any:
    """The function of a value, or of each one in lists and tuples."""
    if isinstance(value, (list, tuple)):
        return type(value)(_mapped(function, each) for each in value)
    return function(value)


def _autocast(function: Callable[..., Any], kind: str, lower: bool) -> Callable[..., Any]:
    """The function with what torch.autocast would do to its arguments, where that is on."""

    def cast(*args: Any, **kwargs: Any) -> Any:
        if not torch.is_autocast_enabled(kind):
            return function(*args, **kwargs)
        dtype = torch.get_autocast_dtype(kind) if lower else torch.float32

        def to(value: Any) -> Any:
            return value.to(dtype) if isinstance(value, VirtualTensor) and value.is_floating_point() else value

        return function(*map(to, args), **{name: to(value) for name, value in kwargs.items()})

    return cast


def _common_device(tensors: Iterable[torch.Tensor]) -> torch.device:
    """The device of all tensors; a number of no axes on the CPU may be anywhere."""
    devices = list({tensor.device: None for tensor in tensors if tensor.dim() or tensor.device.type == TYPE})
    if len(devices) > 1:
        raise RuntimeError(
            "Expected all tensors to be on the same device, but found at least two devices, "
            f"{devices[0]} and {devices[1]}!"
        )
    return devices[0] if devices else torch.device("cpu")


def _at(index: int) -> torch.device:
    return torch.device("cpu") if index == -1 else torch.device(TYPE, index)


def _scatter(
    tensor: torch.Tensor, devices: list[int], sizes: list[int] | None, dim: int, streams: Any
) -> list[torch.Tensor]:
    parts = tensor.chunk(len(devices), dim) if sizes is None else tensor.split(sizes, dim)
    return [part.to(_at(device)) for part, device in zip(parts, devices, strict=False)]


def _gather(tensors: Sequence[torch.Tensor], dim: int, destination: int) -> torch.Tensor:
    return torch.cat([tensor.to(_at(destination)) for tensor in tensors], dim)


def _broadcast(tensors: Sequence[torch.Tensor], devices: list[int], buffer_size: int) -> list[list[torch.Tensor]]:
    return [[tensor.detach().to(_at(device)) for tensor in tensors] for device in devices]


def _one_after_the_other(
    modules: Sequence[Module], inputs: Sequence[tuple], kwargs: Sequence[dict], devices: Sequence[int]
) -> list[Any]:
    return [module(*each, **named) for module, each, named in zip(modules, inputs, kwargs, strict=True)]
