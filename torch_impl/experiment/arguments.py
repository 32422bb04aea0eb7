"""The arguments of a module's call: copies of them, and the other side's in their place, in canonical axes.

PyTorch's axes are the canonical ones, unless the module's own inputs have them in another order than those given.
"""

import copy
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as tree  # PyTorch's public functions for nests of containers are not complete

from parity.core.arrays import Array
from parity.diagnose.experiment.inputs import near, source


def copied(value: Any) -> Any:
    """Return arguments with copies of their tensors, without what they were computed from.

    Objects that hold tensors, as a cache of keys and values does, are copied too: a module may change them.
    """
    with _Detached():
        return tree.tree_map(_copied, value)


def exchanged_arguments(arguments: dict[str, Any], known: Sequence[tuple[Array, Array]]) -> dict[str, Any] | None:
    """Return the arguments of a call with the other side's tensors in place of its own.

    `known`: pairs of a tensor of this side and the other side's, in torch's axes. Returns None if one of the arguments
    is not among them, or if all are the same on both sides.
    """
    own = [mine for mine, _ in known]
    leaves, structure = tree.tree_flatten(arguments)
    changed = list(leaves)
    is_other = False
    for number, leaf in enumerate(leaves):
        if isinstance(leaf, torch.Tensor) and leaf.is_floating_point():
            if (canonical := source(_array(leaf), own)) is None:
                return None
            mine, theirs = known[canonical.number]
            changed[number] = like(np.transpose(theirs, canonical.axes), leaf)
            is_other = is_other or not near(mine, theirs)
    return tree.tree_unflatten(changed, structure) if is_other else None


def _array(tensor: torch.Tensor) -> Array:
    """Return a copy of a tensor as an array of float64, int64 or bool."""
    kind = torch.float64 if tensor.is_floating_point() else torch.bool if tensor.dtype == torch.bool else torch.int64
    return tensor.detach().cpu().to(kind, copy=True).numpy()


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
