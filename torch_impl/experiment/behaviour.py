"""The arguments of a module's call, and its answers to chosen inputs, in canonical axes.

PyTorch's axes are the canonical ones, unless the module's own inputs have them in another order than those given.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as tree  # PyTorch's public functions for nests of containers are not complete

from parity.core.arrays import Array
from parity.diagnose.experiment import probes
from parity.diagnose.experiment.inputs import source
from parity.diagnose.experiment.probes import Responses
from parity.diagnose.experiment.properties import near
from torch_impl.instruments.origins import tensors


def inputs(args: tuple, kwargs: dict[str, Any]) -> list[Array]:
    """Return the tensors that a call takes, in the order of its arguments."""
    return [_array(tensor) for tensor in tensors((args, kwargs)) if not tensor.is_complex()]


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
            if (place := source(_array(leaf), own)) is None:
                return None
            mine, theirs = known[place.number]
            changed[number] = like(np.transpose(theirs, place.axes), leaf)
            is_other = is_other or not near(mine, theirs)
    return tree.tree_unflatten(changed, structure) if is_other else None


def answered(
    call: Callable[..., Any],
    args: tuple,
    kwargs: dict[str, Any],
    canonical: Sequence[Array],
) -> Responses:
    """Return what a module answers to the probes.

    Args:
        call: calls the module, in float64, and returns the output in question as an array in canonical axes, or
            tensors in these axes, of which the first counts.
        args: the arguments of the call in the pair's run; tensors among them are replaced.
        kwargs: those given by name.
        canonical: the inputs that the probes are made of, the same for both sides.
    """
    leaves, structure = tree.tree_flatten((args, kwargs))
    sources = {
        number: found
        for number, leaf in enumerate(leaves)
        if isinstance(leaf, torch.Tensor) and not leaf.is_complex() and (found := source(_array(leaf), canonical))
    }

    def answer(probe: Sequence[Array]) -> Array:
        changed = [
            like(np.transpose(probe[sources[number].number], sources[number].axes), leaf) if number in sources else leaf
            for number, leaf in enumerate(leaves)
        ]
        arguments, named = tree.tree_unflatten(changed, structure)
        with torch.no_grad():
            result = call(*arguments, **named)
        return result if isinstance(result, np.ndarray) else _array(tensors(result)[0])

    return probes.responses(answer, canonical)


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
