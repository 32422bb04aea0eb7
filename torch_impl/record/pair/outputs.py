"""A model's outputs as tensors under canonical names; the canonical axis order is torch's own."""

from collections.abc import Iterator
from typing import Any

import torch

from parity.config.pair import Pair, PairOutput
from parity.core.errors import UsageError, nearest
from parity.runtime import returned
from parity.runtime.returned import Returned
from parity.trace.keys import MODEL

Named = list[tuple[str, torch.Tensor]]


def named(pair: Pair, outputs: Any) -> Named:
    """Return (name, tensor) for each output that [outputs] names, else for all in order.

    Without [outputs] the names are "(model)", "(model)#1", and so on, and numbers are included. Raises UsageError if a
    named output does not exist, or if there is no tensor at all.
    """
    if pair.outputs:
        return [(f"{MODEL}.{name}", _chosen(name, spec, outputs)) for name, spec in pair.outputs.items()]
    compared = _all(outputs)
    if not compared:
        raise UsageError(
            f"torch={pair.torch}: the model's output has no tensor in it: {_kind(outputs)}; return tensors"
        )
    return [(f"{MODEL}#{number}" if number else MODEL, tensor) for number, tensor in enumerate(compared)]


def unnamed(pair: Pair, outputs: Any) -> list[str]:
    """Return the paths of the tensors that [outputs] leaves out. Raises UsageError if a named output does not exist."""
    if not pair.outputs:
        return []
    chosen = {id(tensor) for _, tensor in named(pair, outputs)}
    return [path for path, tensor in _paths("", outputs) if id(tensor) not in chosen]


def describe_returned(pair: Pair, outputs: Any) -> Returned:
    """Return what Keras's half and the report need to know about the outputs; empty if [outputs] names them."""
    return Returned() if pair.outputs else returned.returned(outputs, _is_tensor)


def flat(value: Any) -> Iterator[torch.Tensor]:
    """Yield every tensor in nested tuples, lists, dicts and dataclasses; other objects are not looked into."""
    return (leaf.value for leaf in returned.leaves(value, _is_tensor) if _is_tensor(leaf.value))


def _all(value: Any) -> list[torch.Tensor]:
    """Return every tensor, and every number or array of numbers as a tensor."""
    return [_tensor(leaf.value) for leaf in returned.compared(value, _is_tensor)]


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _tensor(value: Any) -> torch.Tensor:
    """Convert a number to a tensor of the run's precision."""
    if _is_tensor(value):
        return value
    tensor = torch.from_numpy(returned.numbers(value))
    return tensor.to(torch.get_default_dtype()) if tensor.is_floating_point() else tensor


def _parts(value: Any) -> dict[str, Any]:
    """Return the members of a container by key, index or attribute."""
    return dict(returned.parts(value) or [])


def _paths(path: str, value: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield every tensor with its dotted path."""
    if isinstance(value, torch.Tensor):
        yield path, value
    else:
        for key, part in _parts(value).items():
            yield from _paths(f"{path}.{key}".lstrip("."), part)


def _chosen(name: str, given: PairOutput, outputs: Any) -> torch.Tensor:
    """Return the tensor that an entry of [outputs] means: without a key, the only tensor or the part of its name.

    Raises UsageError if it names none, or several.
    """
    key = name if given.torch == "" and len(_tensors(outputs)) != 1 else given.torch
    path = str(key)
    value = _at_path(f"outputs.{name}: torch = {key!r}", path, outputs) if path else outputs
    tensors = _tensors(value)
    if len(tensors) == 1:
        return tensors[0]
    keys = ", ".join(f"{path}.{key}".lstrip(".") for key in list(_parts(value))[:8])
    hint = f"; name one of {keys}" if keys else ""
    raise UsageError(f"outputs.{name}: torch = {key!r} is {_kind(value)}, expected a tensor{hint}")


def _tensors(value: Any) -> list[torch.Tensor]:
    """Return the tensors in a value, or if there are none its numbers."""
    return list(flat(value)) or _all(value)


def _at_path(where: str, path: str, value: Any) -> Any:
    """Return the value at a dotted path, in which keys may contain dots. Raises UsageError if there is none."""
    parts = _parts(value)
    head, _, rest = (path, "", "") if path in parts else path.partition(".")
    if isinstance(value, (tuple, list)) and head.lstrip("-").isdigit() and -len(value) <= int(head) < len(value):
        member = value[int(head)]
    elif head in parts or hasattr(value, head):
        member = parts[head] if head in parts else getattr(value, head)
    else:
        hint = nearest(head, parts) or (f"; it has {', '.join(list(parts)[:8])}" if parts else "")
        raise UsageError(f"{where}: {_kind(value)} has no {head!r}{hint}")
    if member is None:
        raise UsageError(f"{where}: {head!r} is None; let the model return it, or leave this output out")
    return _at_path(where, rest, member) if rest else member


def _kind(value: Any) -> str:
    if isinstance(value, (tuple, list)) and not hasattr(value, "_fields"):
        return f"a {type(value).__name__} of {len(value)}"
    return f"a {type(value).__name__}"
