"""Where each tensor comes from: an input, a batch of a data loader, a parameter, a module's output, a constant.

Tensors are held weakly. An op that only moves, casts or views a tensor passes its origin on; of other results only the
user's line is known.
"""

from collections.abc import Callable
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import nn
from torch.utils._pytree import tree_leaves
from torch.utils.data import IterableDataset
from torch.utils.data.dataloader import _BaseDataLoaderIter  # the base class of all iterators
from torch.utils.weak import WeakIdKeyDictionary

from parity.core.patches import around
from parity.doctor.evidence import Place, Repeated, Step, Tensor
from parity.trace.keys import MODEL
from torch_impl.instruments import source, values
from torch_impl.instruments.virtual_devices import TYPE

Seen = dict[tuple[int, float, float], int]  # the number of a batch, by its numbers
# Functions that only move, cast or view a tensor.
CASTS = ("to", "cuda", "cpu", "type", "double", "float", "half", "bfloat16", "int", "long", "bool", "type_as")
VIEWS = (
    *("view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze", "transpose", "permute", "t", "movedim"),
    *("contiguous", "expand", "__getitem__", "narrow", "select", "chunk", "split", "unbind", "detach", "pin_memory"),
    *("clone", "requires_grad_"),
)
ATTRIBUTES = ("T", "mT", "data")
SAME = frozenset((*CASTS, *VIEWS, *ATTRIBUTES))


class Known(NamedTuple):
    """What is known of a tensor; `cast` says that the line that made it changed its dtype."""

    origin: str
    made: str
    cast: bool = False


NOTHING = Known("", "")
CONSTANT = "constant"


def tensors(value: Any) -> list[torch.Tensor]:
    """Return all tensors in a nest of containers."""
    if isinstance(value, torch.Tensor):
        return [value]
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def device(tensor: torch.Tensor) -> str:
    """Return a tensor's device as the user's code names it; a virtual device stands for a GPU."""
    kind, index = tensor.device.type, tensor.device.index or 0
    return "cpu" if kind == "cpu" else f"{'cuda' if kind == TYPE else kind}:{index}"


def dtype(tensor: torch.Tensor) -> str:
    """Return a tensor's dtype without the prefix "torch."."""
    return str(tensor.dtype).removeprefix("torch.")


class Origins:
    """Knows the origin of each tensor."""

    def __init__(self) -> None:
        self._known: WeakIdKeyDictionary = WeakIdKeyDictionary()

    def describe(self, tensor: torch.Tensor) -> Tensor:
        """Describe a tensor as evidence."""
        origin, line, _ = self.of(tensor)
        shape = [] if tensor.is_nested else list(tensor.shape)
        return Tensor(device=device(tensor), dtype=dtype(tensor), shape=shape, origin=origin, made=line)

    def of(self, tensor: torch.Tensor) -> Known:
        """Return what is known of a tensor."""
        return self._known.get(tensor, NOTHING)

    def note(self, tensor: torch.Tensor, origin: str) -> None:
        """Set the origin of a tensor."""
        self._known[tensor] = self.of(tensor)._replace(origin=origin)

    def note_weights(self, module: nn.Module, path: str, registered: bool, made: dict[str, str]) -> None:
        """Set the origin of a module's own parameters and buffers; `made` holds the line that made each."""
        named = {"parameter": module._parameters, "buffer": module._buffers}
        for kind, weights in named.items():
            for key, tensor in weights.items():
                if tensor is not None:
                    whole = key if path == MODEL else f"{path}.{key}"
                    origin = f"{kind} {whole}" if registered else f"hidden weight of {path}"
                    self._known[tensor] = Known(origin, made.get(key, ""))

    def note_output(self, module: str, outputs: Any) -> None:
        """Set the origin of a module's outputs, except those that already have one (an inner module's, or inputs)."""
        for tensor in tensors(outputs):
            if not self.of(tensor).origin:
                self.note(tensor, f"output of {module}")

    def made(self, function: str, given: list[torch.Tensor], results: Any) -> None:
        """Set the origin of the results of a function from what it was given."""
        given_ids = {id(tensor) for tensor in given}
        for tensor in tensors(results):
            if id(tensor) not in given_ids:
                self._known[tensor] = self._made(function, given, tensor)

    def _made(self, function: str, given: list[torch.Tensor], result: torch.Tensor) -> Known:
        if function in SAME and given:
            known, is_cast = self.of(given[0]), result.dtype != given[0].dtype
            if not is_cast and (known.cast or result.device == given[0].device):
                return known  # the line that gave it its dtype says more than the one that moved it
            return Known(known.origin, source.line(), is_cast)
        is_constant = all(self.of(tensor).origin == CONSTANT for tensor in given)
        return Known(CONSTANT if is_constant else "", source.line())


class Loaders:
    """Watches the program's data loaders, whose iterators may live for several steps.

    Their batches are inputs, and no worker should return what another did.
    """

    def __init__(self, origins: Origins):
        self.origins = origins
        self._seen: WeakKeyDictionary[_BaseDataLoaderIter, Seen] = WeakKeyDictionary()

    def watched(self, step: Step) -> Any:
        """Return a patch within which batches are noted in this step."""
        self.step = step
        return around(_BaseDataLoaderIter, "__next__", self._draw)

    def _draw(self, draw: Callable[..., Any], loader: _BaseDataLoaderIter) -> Any:
        batch = draw(loader)
        for tensor in tensors(batch):
            self.origins.note(tensor, "input batch")
        self._compare(loader, tensors(batch))
        return batch

    def _compare(self, loader: _BaseDataLoaderIter, batch: list[torch.Tensor]) -> None:
        """Note a batch that is the same as an earlier one of another worker."""
        # Batches of one sample, and of values that are all the same, may well come twice.
        workers, number = loader._num_workers, loader._num_yielded - 1
        floats = [tensor for tensor in batch if tensor.is_floating_point() and tensor.dim() and len(tensor) > 1]
        if workers < 2 or not floats:
            return
        numbers = values.numbers(floats[0])
        key = numbers.size, numbers.norm, numbers.mark
        first = self._seen.setdefault(loader, {}).setdefault(key, number)
        if not numbers.constant and first % workers != number % workers:
            repeated = Repeated(batch=number, first=first, place=Place(source=source.line()))
            repeated.whole = isinstance(loader._dataset, IterableDataset)
            self.step.repeated.append(repeated)
