"""What a model returned, as tensors by their canonical names; canonical axes are torch's own."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from parity.errors import UsageError, nearest
from parity.pairs.schema import Pair, PairOutput
from parity.pairs.survey import OUTPUT

Named = list[tuple[str, torch.Tensor]]


def named(pair: Pair, outputs: Any) -> Named:
    """By [outputs], or every tensor in order: "(model)", "(model)#1"... Raises UsageError."""
    if pair.outputs:
        return [(f"{OUTPUT}.{name}", _chosen(name, one, outputs)) for name, one in pair.outputs.items()]
    found = list(flat(outputs))
    if not found:
        raise UsageError(f"torch={pair.torch}: the model's output has no tensor in it: {_kind(outputs)}")
    return [(f"{OUTPUT}#{number}" if number else OUTPUT, tensor) for number, tensor in enumerate(found)]


def unnamed(pair: Pair, outputs: Any) -> list[str]:
    """The paths of the tensors that [outputs] leaves out. Raises UsageError."""
    if not pair.outputs:
        return []
    chosen = {id(tensor) for _, tensor in named(pair, outputs)}
    return [path for path, tensor in _paths("", outputs) if id(tensor) not in chosen]


def flat(value: Any) -> Iterator[torch.Tensor]:
    """Every tensor within tuples, lists, dicts and dataclasses, in order; of other objects nothing is known."""
    if isinstance(value, torch.Tensor):
        yield value
    else:
        for part in _parts(value).values():
            yield from flat(part)


def _parts(value: Any) -> dict[str, Any]:
    """What is within, by key, index or attribute."""
    if isinstance(value, Mapping):
        return {str(key): part for key, part in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return dict(zip(value._fields, value, strict=True))
    if isinstance(value, (tuple, list)):
        return {str(index): part for index, part in enumerate(value)}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name, None) for field in dataclasses.fields(value)}
    return {}


def _paths(path: str, value: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Every tensor with the dotted path at which it stands."""
    if isinstance(value, torch.Tensor):
        yield path, value
    else:
        for key, part in _parts(value).items():
            yield from _paths(f"{path}.{key}".lstrip("."), part)


def _chosen(name: str, given: PairOutput, outputs: Any) -> torch.Tensor:
    """The one that [outputs] means. Raises UsageError."""
    path = str(given.torch)
    found = _dug(f"outputs.{name}: torch = {given.torch!r}", path, outputs) if path else outputs
    if isinstance(found, torch.Tensor):
        return found
    within = list(flat(found))
    if len(within) == 1:
        return within[0]
    keys = ", ".join(f"{path}.{key}".lstrip(".") for key in list(_parts(found))[:8])
    hint = f"; name one of {keys}" if keys else ""
    raise UsageError(f"outputs.{name}: torch = {given.torch!r} is {_kind(found)}, expected a tensor{hint}")


def _dug(where: str, path: str, value: Any) -> Any:
    """What stands at a dotted path; a key may have dots too."""
    parts = _parts(value)
    head, _, rest = (path, "", "") if path in parts else path.partition(".")
    if isinstance(value, (tuple, list)) and head.lstrip("-").isdigit() and -len(value) <= int(head) < len(value):
        found = value[int(head)]
    elif head in parts or hasattr(value, head):
        found = parts[head] if head in parts else getattr(value, head)
    else:
        hint = nearest(head, parts) or (f"; it has {', '.join(list(parts)[:8])}" if parts else "")
        raise UsageError(f"{where}: {_kind(value)} has no {head!r}{hint}")
    if found is None:
        raise UsageError(f"{where}: {head!r} is None; let the model return it, or leave this output out")
    return _dug(where, rest, found) if rest else found


def _kind(value: Any) -> str:
    if isinstance(value, (tuple, list)) and not hasattr(value, "_fields"):
        return f"a {type(value).__name__} of {len(value)}"
    return f"a {type(value).__name__}"
