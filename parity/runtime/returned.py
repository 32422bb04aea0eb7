"""The values that a model returns, flattened to leaves, and the pairing of the leaves of two models.

Leaves are paired by their keys if both models return some (mappings, named tuples, dataclasses, distributions), else by
position.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np

from parity.core.arrays import Array
from parity.core.errors import UsageError, nearest
from parity.core.wording import listed

Path = tuple[str, ...]  # the keys, fields and indices that lead to a leaf, outermost first
MOST = 8  # keys that a message lists; the rest is counted
KINDS = {"b": np.bool_, "i": np.int64, "u": np.int64, "f": np.float64}


class Leaf(NamedTuple):
    """A value inside nested containers; `named` tells whether its path has a key or a field, not only indices."""

    path: Path
    named: bool
    value: Any


class Returned(msgspec.Struct, frozen=True, kw_only=True):
    """What a model returned in one forward pass."""

    keys: list[Path] = []  # the paths of the leaves that are compared, in order; empty if none of them is named
    left_out: dict[str, str] = {}  # by path, the types of the leaves that are neither tensors nor numbers


def parts(value: Any) -> list[tuple[str, Any]] | None:
    """Return the items of a container with their keys, indices or field names; None if the value is no container."""
    if isinstance(value, Mapping):
        return [(str(key), part) for key, part in value.items()]
    if isinstance(value, (tuple, list)):
        names = getattr(value, "_fields", range(len(value)))
        return [(str(name), part) for name, part in zip(names, value, strict=True)]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [(field.name, getattr(value, field.name, None)) for field in dataclasses.fields(value)]
    return _parameters(value) if _is_distribution(value) else None


def _is_distribution(value: Any) -> bool:
    return hasattr(type(value), "log_prob") and hasattr(type(value), "batch_shape")


def _parameters(distribution: Any) -> list[tuple[str, Any]]:
    """Return the tensors, each once, and the further distributions that one holds."""
    held = {id(each): (name, each) for name, each in reversed(vars(distribution).items())}
    of_kind = [(name, each) for name, each in held.values() if hasattr(each, "dtype") or _is_distribution(each)]
    return [(name.lstrip("_"), each) for name, each in reversed(of_kind)]


def leaves(value: Any, is_tensor: Callable[[Any], bool], path: Path = (), named: bool = False) -> Iterator[Leaf]:
    """Yield in order all values that are not containers, except None."""
    within = None if is_tensor(value) else parts(value)
    if within is None:
        if value is not None:
            yield Leaf(path, named, value)
        return
    plain = isinstance(value, (tuple, list)) and not hasattr(value, "_fields")
    for key, part in within:
        yield from leaves(part, is_tensor, (*path, key), named or not plain)


def compared(value: Any, is_tensor: Callable[[Any], bool]) -> list[Leaf]:
    """Return the leaves that are tensors, numbers or arrays of numbers."""
    return [leaf for leaf in leaves(value, is_tensor) if is_tensor(leaf.value) or numbers(leaf.value) is not None]


def chosen(side: str, name: str, key: str | int, outputs: Any, is_tensor: Callable[[Any], bool]) -> Any:
    """Return the tensor or number that an entry of [outputs] means: without a key, the only one, or that of its name.

    A key may end with a part of the last axis: "[..., 0]", "[..., 1:4]". Raises UsageError if it names none or several.
    """
    key = name if key == "" and len(_alike(outputs, is_tensor)) != 1 else key
    path, _, part = str(key).partition("[..., ")
    where = f"outputs.{name}: {side} = {key!r}"
    value = _at_path(where, path, outputs) if path else outputs
    if len(candidates := _alike(value, is_tensor)) == 1:
        return _part(where, part, candidates[0]) if part else candidates[0]
    keys = ", ".join(f"{path}.{part}".lstrip(".") for part, _ in (parts(value) or [])[:MOST])
    raise UsageError(f"{where} is {kind(value)}, expected a tensor{f'; name one of {keys}' if keys else ''}")


def _part(where: str, part: str, tensor: Any) -> Any:
    bounds, size = part.removesuffix("]").split(":"), (*tensor.shape, 0)[len(tensor.shape) - 1]
    if not (len(bounds) < 3 and all(each.isdigit() for each in bounds) and int(bounds[-1]) <= size - (len(bounds) < 2)):
        raise UsageError(f"{where}: expected a part of its last axis of {size}, as in [..., 0] or [..., 0:{size}]")
    return tensor[..., slice(*map(int, bounds)) if len(bounds) > 1 else int(part.removesuffix("]"))]


def _alike(value: Any, is_tensor: Callable[[Any], bool]) -> list[Any]:
    """Return the tensors in a value, or if there are none its numbers."""
    values = [leaf.value for leaf in compared(value, is_tensor)]
    return list(filter(is_tensor, values)) or values


def _at_path(where: str, path: str, value: Any) -> Any:
    """Return the value at a dotted path, in which keys may contain dots. Raises UsageError if there is none."""
    members = dict(parts(value) or [])
    head, _, rest = (path, "", "") if path in members else path.partition(".")
    if isinstance(value, (tuple, list)) and head.lstrip("-").isdigit() and -len(value) <= int(head) < len(value):
        member = value[int(head)]
    elif head in members or hasattr(value, head):
        member = members[head] if head in members else getattr(value, head)
    else:
        hint = nearest(head, members) or (f"; it has {', '.join(list(members)[:MOST])}" if members else "")
        raise UsageError(f"{where}: {kind(value)} has no {head!r}{hint}")
    if member is None:
        raise UsageError(f"{where}: {head!r} is None; let the model return it, or leave this output out")
    return _at_path(where, rest, member) if rest else member


def kind(value: Any) -> str:
    """Return the class of a value, and of a tuple or list how many members it has, in words."""
    is_plain = isinstance(value, (tuple, list)) and not hasattr(value, "_fields")
    return f"a {type(value).__name__}{f' of {len(value)}' if is_plain else ''}"


def numbers(value: Any) -> Array | None:
    """Return a number or an array of numbers as bool, int64 or float64; None for anything else."""
    if not isinstance(value, (bool, int, float, np.ndarray, np.generic)):
        return None
    array = np.asarray(value)
    kind = KINDS.get(array.dtype.kind)
    return None if kind is None else array.astype(kind)


def returned(value: Any, is_tensor: Callable[[Any], bool]) -> Returned:
    """Return the description of a model's return value for the other side and the report."""
    kept = compared(value, is_tensor)
    paths = {leaf.path for leaf in kept}
    others = [leaf for leaf in leaves(value, is_tensor) if leaf.path not in paths]
    return Returned(
        keys=[leaf.path for leaf in kept] if any(leaf.named for leaf in kept) else [],
        left_out={".".join(leaf.path): type(leaf.value).__name__ for leaf in others},
    )


def in_order(keys: Sequence[Path], outputs: list[Leaf]) -> list[Leaf]:
    """Return Keras's leaves in the order of torch's `keys`; a single one is paired by any name. Raises UsageError."""
    if not keys or not any(leaf.named for leaf in outputs) or len(keys) == len(outputs) == 1:
        return outputs
    own = [leaf.path for leaf in outputs]
    only_torch, only_keras = [key for key in keys if key not in own], [key for key in own if key not in keys]
    if only_torch or only_keras:
        alone = [
            f"only {side} has {listed([repr('.'.join(path)) for path in paths], MOST)}"
            for side, paths in (("torch's", only_torch), ("Keras's", only_keras))
            if paths
        ]
        common = next((key for key in keys if key in own), own[0])
        torch, keras = (only_torch[0], only_keras[0]) if only_torch and only_keras else (common, common)
        raise UsageError(
            f"the models' outputs have different keys: {'; '.join(alone)}; in the pair file, name each output to "
            f'compare, as in [outputs.NAME] with torch = "{".".join(torch)}" and keras = "{".".join(keras)}"'
        )
    return sorted(outputs, key=lambda leaf: keys.index(leaf.path))


def sentences(side: str, result: Returned) -> list[str]:
    """Return sentences for the report on the outputs that were left out; `side` is "torch" or "Keras"."""
    return [f"{side}'s output {path!r} of type {kind} was not compared" for path, kind in result.left_out.items()]
