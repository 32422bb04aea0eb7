"""What a model returned, as tensors by their canonical names; canonical axes are torch's own."""

from collections.abc import Iterator
from typing import Any

import torch

from parity.config.pair import Pair, PairOutput
from parity.core.errors import UsageError, nearest
from parity.core.names import MODEL
from parity.trace import returned
from parity.trace.returned import Returned

Named = list[tuple[str, torch.Tensor]]


def named(pair: Pair, outputs: Any) -> Named:
    """By [outputs], or every tensor and number in order: "(model)", "(model)#1"... Raises UsageError."""
    if pair.outputs:
        return [(f"{MODEL}.{name}", _chosen(name, one, outputs)) for name, one in pair.outputs.items()]
    found = _all(outputs)
    if not found:
        raise UsageError(f"torch={pair.torch}: the model's output has no tensor in it: {_kind(outputs)}")
    return [(f"{MODEL}#{number}" if number else MODEL, tensor) for number, tensor in enumerate(found)]


def unnamed(pair: Pair, outputs: Any) -> list[str]:
    """The paths of the tensors that [outputs] leaves out. Raises UsageError."""
    if not pair.outputs:
        return []
    chosen = {id(tensor) for _, tensor in named(pair, outputs)}
    return [path for path, tensor in _paths("", outputs) if id(tensor) not in chosen]


def told(pair: Pair, outputs: Any) -> Returned:
    """What Keras's half and the report have to know of them; nothing where [outputs] names those to compare."""
    return Returned() if pair.outputs else returned.returned(outputs, _is_tensor)


def flat(value: Any) -> Iterator[torch.Tensor]:
    """Every tensor within tuples, lists, dicts and dataclasses, in order; of other objects nothing is known."""
    return (leaf.value for leaf in returned.leaves(value, _is_tensor) if _is_tensor(leaf.value))


def _all(value: Any) -> list[torch.Tensor]:
    """The same with numbers and arrays of them."""
    return [_tensor(leaf.value) for leaf in returned.compared(value, _is_tensor)]


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _tensor(value: Any) -> torch.Tensor:
    """Numbers have the precision of the run."""
    if _is_tensor(value):
        return value
    made = torch.from_numpy(returned.numbers(value))
    return made.to(torch.get_default_dtype()) if made.is_floating_point() else made


def _parts(value: Any) -> dict[str, Any]:
    """What is within, by key, index or attribute."""
    return dict(returned.parts(value) or [])


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
    within = list(flat(found)) or _all(found)
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
