"""Tensors and modules on devices called cuda:i, which are virtual.

Whatever reports a tensor's device reports that name, and whatever moves a tensor accepts it. A module's parameters
remain the same objects when it is moved, as on CUDA: an optimizer made before still holds them, and tied weights stay
tied.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn import Parameter
from torch.nn.parameter import UninitializedTensorMixin

from parity.core.patches import calling
from torch_impl.instruments.pretended.devices import StandIn, located, placed
from torch_impl.instruments.virtual_devices import Machine, VirtualTensor, place, set_data

_Tensor = torch.Tensor
_BASE = torch._C.TensorBase
_Device = torch.device


def patches(machine: Machine) -> Iterator[tuple[Any, str, Any]]:
    """Yield what is replaced: owner, name, value."""
    for name, value in {**_places(machine), **_reads(), **_pins(), **_moves(machine)}.items():
        yield _Tensor, name, value
    yield UninitializedTensorMixin, "materialize", calling(_materialize, UninitializedTensorMixin.materialize)
    has_compatible_type = torch._has_compatible_shallow_copy_type
    yield torch, has_compatible_type.__name__, calling(_are_compatible, has_compatible_type)
    yield torch._tensor_str, "_str", calling(_text, torch._tensor_str._str)


def _places(machine: Machine) -> dict[str, Any]:
    def kind(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if args and isinstance(args[0], StandIn):
            return self.to(args[0](1))  # a tensor of this type; raises if PyTorch is built without CUDA
        if args or kwargs or not isinstance(self, VirtualTensor):
            return _BASE.type(self, *args, **kwargs)
        return f"torch.{machine.called}.{_BASE.type(self).rpartition('.')[2]}"

    def index(self: torch.Tensor) -> int:
        return self.place.index if isinstance(self, VirtualTensor) else _BASE.get_device(self)

    return {
        "device": property(lambda self: machine.name(place(self))),
        "is_cuda": property(lambda self: isinstance(self, VirtualTensor) or _BASE.is_cuda.__get__(self)),
        "get_device": index,
        "type": kind,
    }


def _reads() -> dict[str, Any]:
    def numpy(self: torch.Tensor, *, force: bool = False) -> Any:
        if isinstance(self, VirtualTensor):
            if not force:
                raise TypeError(
                    f"can't convert {self.device} device type tensor to numpy. "
                    "Use Tensor.cpu() to copy the tensor to host memory first."
                )
            self = self.detach().cpu()
        return _BASE.numpy(self, force=force)

    def tolist(self: torch.Tensor) -> Any:
        return _BASE.tolist(self.detach().cpu() if isinstance(self, VirtualTensor) else self)

    def formatted(self: torch.Tensor, spec: str) -> str:
        if isinstance(self, VirtualTensor) and not self.dim():
            return self.item().__format__(spec)
        return _format(self, spec)

    def reduced(self: torch.Tensor, protocol: int) -> Any:
        if not isinstance(self, VirtualTensor):
            return _reduce(self, protocol)
        if isinstance(self, Parameter):
            return torch._utils._rebuild_parameter, (self.data, self.requires_grad, OrderedDict())
        values = (self.detach().cpu(), self.dtype, str(self.device), self.requires_grad)
        return torch._utils._rebuild_device_tensor_from_cpu_tensor, values

    _format, _reduce = _Tensor.__format__, _Tensor.__reduce_ex__
    return {"numpy": numpy, "tolist": tolist, "__format__": formatted, "__reduce_ex__": reduced}


def _pins() -> dict[str, Any]:
    """Return the methods for pinned memory, which here is only a mark that a tensor shares with its views."""

    def pinned(self: torch.Tensor, device: Any = None) -> bool:
        return any(getattr(tensor, "pinned", False) for tensor in (self, self._base) if tensor is not None)

    def pin(self: torch.Tensor, device: Any = None) -> torch.Tensor:
        if isinstance(self, VirtualTensor):
            raise RuntimeError(f"cannot pin '{self.type()}' only dense CPU tensors can be pinned")
        if pinned(self):
            return self
        copy = self.clone()
        copy.pinned = True
        return copy

    return {"pin_memory": pin, "is_pinned": pinned, "record_stream": lambda self, stream: None}


def _moves(machine: Machine) -> dict[str, Any]:
    def to(self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        other = args[0] if args else kwargs.get("other")
        if isinstance(other, VirtualTensor):  # in inference mode torch would not ask it for its device
            kwargs.pop("other", None)
            args = (place(other), other.dtype, *args[1:])
        if isinstance(self, UninitializedTensorMixin):
            places = (located(machine, argument) for argument in (kwargs.get("device"), *args))
            self.later = next((each for each in places if isinstance(each, _Device)), None)
            return self
        return placed(_BASE.to, machine, 1, self, *args, **kwargs)

    def cuda(self: torch.Tensor, device: Any = None, non_blocking: bool = False, **kwargs: Any) -> torch.Tensor:
        return to(self, machine.called if device is None else device, non_blocking=non_blocking, **kwargs)

    def new_tensor(self: torch.Tensor, data: Any, *, dtype: Any = None, device: Any = None, **kwargs: Any) -> Any:
        return torch.tensor(data, dtype=dtype or self.dtype, device=device or self.device, **kwargs)

    return {"to": to, "cuda": cuda, "new_tensor": new_tensor, "data": property(_BASE.data.__get__, _set_data)}


def _set_data(self: torch.Tensor, value: torch.Tensor) -> None:
    """Do what `self.data = value` does, even if only one of the two is virtual."""
    # Then the object changes its class in place, and keeps its gradient and hooks.
    if isinstance(self, VirtualTensor) == isinstance(value, VirtualTensor):
        return set_data(self, value)
    gradient, self.grad = self.grad, None
    hooks, accumulate_hooks = self._backward_hooks, self._post_accumulate_grad_hooks
    parameter, requires_grad, source = isinstance(self, Parameter), self.requires_grad, value.detach()
    state = {**self.__dict__, **source.__dict__}
    if isinstance(value, VirtualTensor):
        self.__class__ = VirtualTensor
        state |= {"_is_param": True} if parameter else {}
    else:
        self.__class__ = Parameter if parameter else torch.Tensor
        state = {name: attribute for name, attribute in state.items() if name not in ("inner", "place", "_is_param")}
    torch._C._swap_tensor_impl(self, source)
    self.__dict__ = state
    self.requires_grad_(requires_grad)
    self._backward_hooks, self._post_accumulate_grad_hooks = hooks, accumulate_hooks
    if gradient is not None:
        self.grad = gradient.to(value.device, value.dtype)
    return None


def _materialize(plain: Callable[..., None], self: torch.Tensor, *args: Any, **kwargs: Any) -> None:
    """Give a lazy parameter its values, where its module has been moved meanwhile."""
    device = self.__dict__.pop("later", None)
    plain(self, *args, **kwargs)
    if device is not None:
        self.data = self.data.to(device)


def _are_compatible(plain: Callable[..., bool], tensor: torch.Tensor, value: torch.Tensor) -> bool:
    """Return whether `tensor.data = value` works, which always does for virtual tensors."""
    return isinstance(tensor, VirtualTensor) or isinstance(value, VirtualTensor) or plain(tensor, value)


def _text(plain: Callable[..., str], self: torch.Tensor, *, tensor_contents: str | None = None) -> str:
    """Return a tensor as it is printed, a virtual one as on CUDA."""
    if not isinstance(self, VirtualTensor):
        return plain(self, tensor_contents=tensor_contents)
    suffix = ", requires_grad=True" if self.requires_grad else ""
    if self.grad_fn is not None:
        suffix = f", grad_fn=<{self.grad_fn.name()}>"
    values = plain(self.detach().cpu(), tensor_contents=tensor_contents)
    head = "Parameter containing:\n" if isinstance(self, Parameter) else ""
    return f"{head}{values[:-1]}, device='{self.device}'{suffix})"
