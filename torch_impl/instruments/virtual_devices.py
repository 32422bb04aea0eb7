"""Virtual devices: any number of devices `lazy:i` on a machine without any, with real computation.

A VirtualTensor wraps a real tensor and computes with it, but refuses to be mixed with tensors of other devices, as CUDA
tensors do. Autograd, modules and optimizers work on it unchanged. `lazy` is a device type that torch knows, and that no
backend of a plain build uses.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from parity.core.wording import count
from parity.doctor.evidence import NotPretended

TYPE = "lazy"
COPIES = {torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default}
# The argument that may (or must) be on the CPU while the others are on a device; and the result that is on the CPU.
ON_HOST = {
    torch.ops.aten.index.Tensor: 1,
    torch.ops.aten.index_put.default: 1,
    torch.ops.aten.index_put_.default: 1,
    torch.ops.aten._index_put_impl_.default: 1,
    torch.ops.aten._pack_padded_sequence.default: 1,
    torch.ops.aten._pack_padded_sequence_backward.default: 2,
    torch.ops.aten._pad_packed_sequence.default: 1,
}
RESULT_ON_HOST = {torch.ops.aten._pack_padded_sequence.default: 1, torch.ops.aten._pad_packed_sequence.default: 1}
_DATA, _DEVICE = torch._C.TensorBase.data, torch._C.TensorBase.device


class VirtualTensor(torch.Tensor):
    """The tensor `inner`, claiming to be on the device `place`."""

    # __torch_dispatch__ wraps the results of ops; the default __torch_function__ would wrap them again.
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, inner: torch.Tensor, place: torch.device) -> "VirtualTensor":
        return torch.Tensor._make_wrapper_subclass(
            cls,
            inner.size(),
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            layout=inner.layout,
            device=place,
        )

    def __init__(self, inner: torch.Tensor, place: torch.device):
        self.inner = inner
        self.place = place

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        return _compute(func, args, kwargs or {})


@dataclass
class Machine:
    """The device that computes, and the name `called` under which the program knows the virtual devices."""

    physical: torch.device
    called: str = TYPE
    count: int | None = None
    current: int = 0
    not_pretended: list[NotPretended] = field(default_factory=list)  # what the program called that is not imitated

    def place(self, device: torch.device) -> torch.device:
        """Return the virtual device for a device that the program names; any other device unchanged.

        Raises torch.AcceleratorError, as CUDA does, if there is no such device.
        """
        if device.type not in (self.called, TYPE):
            return device
        index = self.current if device.index is None else device.index
        if self.count is not None and index >= self.count:
            devices = count(self.count, "device")
            raise torch.AcceleratorError(f"CUDA error: invalid device ordinal: {self.called}:{index} of {devices}")
        return torch.device(TYPE, index)

    def name(self, device: torch.device) -> torch.device:
        """Return the program's name of a virtual device; any other device unchanged."""
        return torch.device(self.called, device.index) if device.type == TYPE else device


class VirtualDevices(TorchDispatchMode):
    """The dispatch mode in which tensors can be made on virtual devices and copied to them."""

    machine = Machine(torch.device("cpu"))

    def __init__(self, machine: Machine):
        super().__init__()
        self._before, VirtualDevices.machine = VirtualDevices.machine, machine

    def __exit__(self, *error: Any) -> None:
        VirtualDevices.machine = self._before
        super().__exit__(*error)

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        return _compute(func, args, kwargs or {})


def _compute(func: Callable[..., Any], args: tuple, kwargs: dict) -> Any:
    """Run an op on the real tensors, and put its results on the device of its arguments."""
    given: dict[int, torch.Tensor] = {}  # by id of the real tensor, because an in-place op returns its argument
    machine = VirtualDevices.machine

    def real(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            inner = value.inner if isinstance(value, VirtualTensor) else value
            given[id(inner)] = value
            return inner
        if isinstance(value, torch.device) and machine.place(value).type == TYPE:
            return machine.physical
        return value

    real_args, real_kwargs = tree_map(real, (args, kwargs))
    device = _device(func, args, kwargs, given)
    results = func(*real_args, **real_kwargs)
    if device.type != TYPE:
        return results

    def virtual(result: Any) -> Any:
        if not isinstance(result, torch.Tensor):
            return result
        same = given.get(id(result))
        if same is not None and place(same) == device:
            return _as_its_inner(same) if torch.Tag.inplace_view in func.tags else same
        # A copy on another device must not share memory with the original.
        return VirtualTensor(result.clone() if same is not None else result, device)

    if func in RESULT_ON_HOST:
        return tuple(entry if i == RESULT_ON_HOST[func] else virtual(entry) for i, entry in enumerate(results))
    return tree_map(virtual, results)


def _device(func: Any, args: tuple, kwargs: dict, given: dict[int, torch.Tensor]) -> torch.device:
    """Return the device of an op's results: the one that is asked for, else that of its arguments."""
    requested = kwargs.get("device") or next((value for value in args if isinstance(value, torch.device)), None)
    if requested is not None:
        return VirtualDevices.machine.place(requested)
    if func in COPIES:
        return place(args[0])
    on_host = args[ON_HOST[func]] if func in ON_HOST else ()
    unchecked = {id(tensor) for tensor in (on_host if isinstance(on_host, (list, tuple)) else [on_host])}
    return _common_device(
        tensor for tensor in given.values() if id(tensor) not in unchecked or isinstance(tensor, VirtualTensor)
    )


def place(tensor: torch.Tensor) -> torch.device:
    """Return the device of a tensor: `lazy:i` for a virtual one, whatever the program calls it."""
    return tensor.place if isinstance(tensor, VirtualTensor) else _DEVICE.__get__(tensor)


def _as_its_inner(tensor: VirtualTensor) -> VirtualTensor:
    """Return the tensor after an in-place change of shape, with the shape that its inner tensor has now."""
    if tensor.shape != tensor.inner.shape or tensor.stride() != tensor.inner.stride():
        set_data(tensor, VirtualTensor(tensor.inner, tensor.place))
    return tensor


def set_data(tensor: torch.Tensor, value: torch.Tensor) -> None:
    """Do what `tensor.data = value` does, if both tensors are virtual or neither is."""
    _DATA.__set__(tensor, value)
    if isinstance(tensor, VirtualTensor):
        tensor.inner, tensor.place = value.inner, value.place


def _common_device(tensors: Iterable[torch.Tensor]) -> torch.device:
    """Return the device of all tensors; scalars on the CPU may be combined with any device.

    Raises RuntimeError, with torch's own message, if there are several.
    """
    devices = list({place(tensor): None for tensor in tensors if tensor.dim() or isinstance(tensor, VirtualTensor)})
    if len(devices) > 1:
        first, second = map(VirtualDevices.machine.name, devices[:2])
        raise RuntimeError(
            f"Expected all tensors to be on the same device, but found at least two devices, {first} and {second}!"
        )
    return devices[0] if devices else torch.device("cpu")
