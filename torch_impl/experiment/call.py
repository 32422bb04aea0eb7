"""The call of a module, taken apart: its arguments, and its ops in the order of their execution.

Arguments are copied, as a module may change them. Ops come with the user's lines that call them. A TorchDispatchMode
sees them: below nn.functional, so that what is written in Python there is seen op by op, and above the kernels, so that
a softmax is one op. Attention is taken apart, as fused it would hide where the scores differ.
"""

import copy
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as tree  # PyTorch's public functions for nests of containers are not complete
from torch.utils._python_dispatch import TorchDispatchMode  # what sees every op has no public name

from parity.core.arrays import Array
from parity.diagnose.experiment.ops import Kind, Recorder, Recording
from torch_impl.instruments.origins import tensors
from torch_impl.instruments.source import nearest
from torch_impl.record.weights import array


def copied(value: Any) -> Any:
    """Return arguments with copies of their tensors, without what they were computed from.

    Objects that hold tensors, as a cache of keys and values does, are copied too: a module may change them.
    """
    with _Detached():
        return tree.tree_map(_copied, value)


def like(array: Array, tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor of an array's numbers, of the dtype and on the device of another tensor."""
    return torch.tensor(np.ascontiguousarray(array), dtype=tensor.dtype, device=tensor.device)


class _Detached(TorchFunctionMode):
    """Lets `copy.deepcopy` copy tensors that were computed, which it refuses otherwise."""

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if function is torch.Tensor.__deepcopy__:
            tensor, known = args
            return known.setdefault(id(tensor), _copied(tensor))
        return function(*args, **(kwargs or {}))


def _copied(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor):
        return leaf.detach().clone().requires_grad_(leaf.requires_grad)
    if not isinstance(leaf, nn.Module):
        with suppress(Exception):  # what cannot be copied is shared
            return copy.deepcopy(leaf)
    return leaf


JOINS = ("cat", "stack")
COPIES = ("clone", "_unsafe_view", "_to_copy", "lift_fresh", "detach", "alias")


def recorded(replay: Callable[[], Any]) -> Recording:
    """Return the ops of `replay`, which calls the module again in float64 and returns its outputs or their numbers."""
    with sdpa_kernel(SDPBackend.MATH), _Ops() as ops:
        outputs = replay()
    return ops.recording([outputs] if isinstance(outputs, np.ndarray) else tensors(outputs))


class _Ops(TorchDispatchMode):
    """Records each op.

    A tensor is told by its place in memory, as autograd makes new objects for views, and by how often that memory has
    been written to.
    """

    def __init__(self) -> None:
        super().__init__()
        self.recorder = Recorder(self._identity, array)
        self._writes: dict[int, int] = defaultdict(int)
        self._writers: dict[int, tuple[str, str, list[int]]] = {}  # the last in-place op on a storage

    def recording(self, returned: list[Any]) -> Recording:
        """Return what was recorded."""
        for each in returned:
            if isinstance(each, torch.Tensor):
                self._number(each)
        return self.recorder.recording(returned)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False, or the first op would import torch._dynamo, which takes seconds."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        given = tensors((args, kwargs))
        name, line, inputs = func.overloadpacket.__name__, nearest(), [self._number(each) for each in given]
        results = func(*args, **kwargs or {})
        call = name.strip("_"), line, inputs
        schema = func._schema.arguments
        named = {argument.name: value for argument, value in zip(schema, args, strict=False)} | (kwargs or {})
        writes = [argument.name for argument in schema if argument.alias_info and argument.alias_info.is_write]
        for tensor in tensors([named.get(name) for name in writes]):
            self._writes[_storage(tensor)] += 1
            self._writers[_storage(tensor)] = call
        made = tensors(results)
        self.recorder.add(*call, made, _kind(func, name, given, made))
        return results

    def _number(self, tensor: torch.Tensor) -> int:
        """Return the number of a tensor; if other than by itself it was written to, the writer is recorded again."""
        if not self.recorder.knows(tensor) and (writer := self._writers.get(_storage(tensor))):
            self.recorder.add(*writer, [tensor])
        return self.recorder.number(tensor)

    def _identity(self, tensor: torch.Tensor) -> tuple:
        storage = _storage(tensor)
        place = storage, tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype
        return *place, self._writes[storage], tensor.is_conj()


def _kind(func: Any, name: str, given: list[torch.Tensor], made: list[torch.Tensor]) -> Kind:
    """Return whether an op computes, moves its first input as a whole, or selects or joins parts."""
    if not given or not (func.is_view or name in COPIES + JOINS):
        return "computed"
    is_whole = len(made) == 1 and given[0].numel() == made[0].numel() and name not in JOINS
    return "moved" if is_whole and given[0].dtype == made[0].dtype else "computed" if name in COPIES else "selected"


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
