"""Which tensor is which: an input, a parameter, what a module returned, a constant.

Tensors are held weakly. An op that only moves, casts or views a tensor hands the origin on; what other ops make
is known by the user's line alone.
"""

from typing import Any, NamedTuple

import torch
from torch import nn
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakIdKeyDictionary

from parity.core.names import MODEL
from parity.doctor import evidence
from torch_impl.harness.doctor import source
from torch_impl.harness.virtual_devices import TYPE

# What moves, casts or views a tensor, by the function's name.
CASTS = ("to", "cuda", "cpu", "type", "double", "float", "half", "bfloat16", "int", "long", "bool", "type_as")
VIEWS = (
    *("view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze", "transpose", "permute", "t", "movedim"),
    *("contiguous", "expand", "__getitem__", "narrow", "select", "chunk", "split", "unbind", "detach", "pin_memory"),
    *("clone", "requires_grad_"),
)
ATTRIBUTES = ("T", "mT", "data")
SAME = frozenset((*CASTS, *VIEWS, *ATTRIBUTES))


class Known(NamedTuple):
    """What is known of a tensor. `cast`: the line that made it changed its type."""

    origin: str
    made: str
    cast: bool = False


NOTHING = Known("", "")
CONSTANT = "constant"


def tensors(value: Any) -> list[torch.Tensor]:
    """All tensors in it."""
    if isinstance(value, torch.Tensor):
        return [value]
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def device(tensor: torch.Tensor) -> str:
    """Where it is, as the user's code names it: a virtual device stands for a GPU."""
    return name(tensor.device)


def name(where: torch.device) -> str:
    """The same of a device."""
    if where.type == "cpu":
        return "cpu"
    return f"{'cuda' if where.type == TYPE else where.type}:{where.index or 0}"


def dtype(tensor: torch.Tensor) -> str:
    """float32."""
    return str(tensor.dtype).removeprefix("torch.")


class Origins:
    """Says of a tensor whence it came."""

    def __init__(self) -> None:
        self._known: WeakIdKeyDictionary = WeakIdKeyDictionary()

    def describe(self, tensor: torch.Tensor) -> evidence.Tensor:
        """As evidence."""
        origin, made, _ = self.of(tensor)
        shape = [] if tensor.is_nested else list(tensor.shape)
        return evidence.Tensor(device=device(tensor), dtype=dtype(tensor), shape=shape, origin=origin, made=made)

    def of(self, tensor: torch.Tensor) -> Known:
        """What is known of it."""
        return self._known.get(tensor, NOTHING)

    def note(self, tensor: torch.Tensor, origin: str) -> None:
        """It is this."""
        self._known[tensor] = self.of(tensor)._replace(origin=origin)

    def note_weights(self, module: nn.Module, path: str, registered: bool, made: dict[str, str]) -> None:
        """The module's own parameters and buffers, with the line that made each."""
        named = {"parameter": module._parameters, "buffer": module._buffers}
        for kind, weights in named.items():
            for key, tensor in weights.items():
                if tensor is not None:
                    whole = key if path == MODEL else f"{path}.{key}"
                    origin = f"{kind} {whole}" if registered else f"hidden weight of {path}"
                    self._known[tensor] = Known(origin, made.get(key, ""))

    def note_output(self, module: str, outputs: Any) -> None:
        """What a module returned, unless an inner one had, or it was given to it as it is."""
        for tensor in tensors(outputs):
            if not self.of(tensor).origin:
                self.note(tensor, f"output of {module}")

    def made(self, function: str, given: list[torch.Tensor], results: Any) -> None:
        """An op of this name made its results of what it was given."""
        here = {id(tensor) for tensor in given}
        for tensor in tensors(results):
            if id(tensor) not in here:
                self._known[tensor] = self._made(function, given, tensor)

    def _made(self, function: str, given: list[torch.Tensor], result: torch.Tensor) -> Known:
        if function in SAME and given:
            before = self.of(given[0])
            if result.dtype != given[0].dtype:
                return Known(before.origin, source.line(), cast=True)
            if before.cast or result.device == given[0].device:
                return before  # what gave it its type says more than what moved it on
            return Known(before.origin, source.line())
        constant = all(self.of(tensor).origin == CONSTANT for tensor in given)
        return Known(CONSTANT if constant else "", source.line())
