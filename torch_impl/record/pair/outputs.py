"""A model's outputs as tensors under canonical names; the canonical axis order is torch's own."""

from collections.abc import Iterator
from typing import Any

import torch

from parity.config.pair import Pair
from parity.core.errors import UsageError
from parity.runtime import returned
from parity.trace.keys import MODEL, numbered

Named = list[tuple[str, torch.Tensor]]


def named(pair: Pair, outputs: Any) -> Named:
    """Return (name, tensor) for each output that [outputs] names, else for all in order.

    Without [outputs] the names are "(model)", "(model)#1", and so on, and numbers are included. Raises UsageError if a
    named output does not exist, or if there is no tensor at all.
    """
    if pair.outputs:
        return [
            (f"{MODEL}.{name}", _tensor(returned.chosen("torch", name, spec.torch, outputs, _is_tensor)))
            for name, spec in pair.outputs.items()
        ]
    compared = [_tensor(leaf.value) for leaf in returned.compared(outputs, _is_tensor)]
    if not compared:
        raise UsageError(
            f"torch={pair.torch}: the model's output has no tensor in it: {returned.kind(outputs)}; return tensors"
        )
    return [(numbered(MODEL, number), tensor) for number, tensor in enumerate(compared)]


def unnamed(pair: Pair, outputs: Any) -> list[str]:
    """Return the paths of the tensors that [outputs] leaves out. Raises UsageError if a named output does not exist."""
    if not pair.outputs:
        return []
    wholes = ((name, str(spec.torch).partition("[..., ")[0]) for name, spec in pair.outputs.items())
    chosen = {id(returned.chosen("torch", *whole, outputs, _is_tensor)) for whole in wholes}
    others = (leaf for leaf in returned.leaves(outputs, _is_tensor) if id(leaf.value) not in chosen)
    return [".".join(leaf.path) for leaf in others if _is_tensor(leaf.value)]


def describe_returned(pair: Pair, outputs: Any) -> returned.Returned:
    """Return what Keras's half and the report need to know about the outputs; empty if [outputs] names them."""
    return returned.Returned() if pair.outputs else returned.returned(outputs, _is_tensor)


def flat(value: Any) -> Iterator[torch.Tensor]:
    """Yield every tensor in nested tuples, lists, dicts, dataclasses and distributions, not in other objects."""
    return (leaf.value for leaf in returned.leaves(value, _is_tensor) if _is_tensor(leaf.value))


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _tensor(value: Any) -> torch.Tensor:
    """Convert a number to a tensor of the run's precision."""
    if _is_tensor(value):
        return value
    tensor = torch.from_numpy(returned.numbers(value))
    return tensor.to(torch.get_default_dtype()) if tensor.is_floating_point() else tensor
