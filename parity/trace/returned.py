"""What a model returned, framework-free: its leaves, and which leaf of one side is which of the other's.

Leaves are paired by their keys where both sides have some (mappings, named tuples, dataclasses), else by position.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np

from parity.core.arrays import Array
from parity.core.errors import UsageError

Path = tuple[str, ...]  # keys, fields and indexes, from the outermost
MOST = 8  # keys that a message names
KINDS = {"b": np.bool_, "i": np.int64, "u": np.int64, "f": np.float64}


class Leaf(NamedTuple):
    """`named`: whether a key or a field, and not indexes alone, leads to it."""

    path: Path
    named: bool
    value: Any


class Returned(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a pass. `keys`: the paths of what is compared, in order; empty where none of them is named.

    `left_out`: by its path, the type of what is neither a tensor nor a number.
    """

    keys: list[Path] = []
    left_out: dict[str, str] = {}


def parts(value: Any) -> list[tuple[str, Any]] | None:
    """Return what is within a container, by key, index or field; None for what is no container."""
    if isinstance(value, Mapping):
        return [(str(key), part) for key, part in value.items()]
    if isinstance(value, (tuple, list)):
        names = getattr(value, "_fields", range(len(value)))
        return [(str(name), part) for name, part in zip(names, value, strict=True)]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [(field.name, getattr(value, field.name, None)) for field in dataclasses.fields(value)]
    return None


def leaves(value: Any, is_tensor: Callable[[Any], bool], path: Path = (), named: bool = False) -> Iterator[Leaf]:
    """Yield all that is no container, in order, but for None."""
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


def numbers(value: Any) -> Array | None:
    """Return a number or an array of numbers as bool, int64 or float64; None for anything else."""
    if not isinstance(value, (bool, int, float, np.ndarray, np.generic)):
        return None
    array = np.asarray(value)
    kind = KINDS.get(array.dtype.kind)
    return None if kind is None else array.astype(kind)


def returned(value: Any, is_tensor: Callable[[Any], bool]) -> Returned:
    """Return what the other side and the report are told of a pass."""
    kept = compared(value, is_tensor)
    paths = {leaf.path for leaf in kept}
    others = [leaf for leaf in leaves(value, is_tensor) if leaf.path not in paths]
    return Returned(
        keys=[leaf.path for leaf in kept] if any(leaf.named for leaf in kept) else [],
        left_out={".".join(leaf.path): type(leaf.value).__name__ for leaf in others},
    )


def in_order(keys: Sequence[Path], found: list[Leaf]) -> list[Leaf]:
    """Return Keras's leaves in torch's order. `keys`: torch's, if any is named.

    One output of each model is the same one, whatever its name. Raises UsageError where a side lacks keys.
    """
    if not keys or not any(leaf.named for leaf in found) or len(keys) == len(found) == 1:
        return found
    own = [leaf.path for leaf in found]
    ours, theirs = [key for key in keys if key not in own], [key for key in own if key not in keys]
    if ours or theirs:
        alone = [
            f"only {side} has {_listed(paths)}" for side, paths in (("torch's", ours), ("Keras's", theirs)) if paths
        ]
        torch, keras = (
            (ours[0], theirs[0]) if ours and theirs else [next((key for key in keys if key in own), own[0])] * 2
        )
        raise UsageError(
            f"the models' outputs have other keys: {'; '.join(alone)}; name in the pair's file each one to compare, "
            f'as in [outputs.NAME] with torch = "{".".join(torch)}" and keras = "{".".join(keras)}"'
        )
    return sorted(found, key=lambda leaf: keys.index(leaf.path))


def sentences(side: str, told: Returned) -> list[str]:
    """Return what the report says of outputs that were left out. `side`: torch or Keras."""
    return [f"{side}'s output {path!r} of type {kind} was not compared" for path, kind in told.left_out.items()]


def _listed(paths: list[Path]) -> str:
    more = f" and {len(paths) - MOST} more" if len(paths) > MOST else ""
    return ", ".join(repr(".".join(path)) for path in paths[:MOST]) + more
