"""The tree of a model's layers, by paths: the one walk that all recording asks.

A path consists of the names of the layers below the model, joined by slashes; equal names of siblings get a number.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from keras_impl.models.transformer import MultiheadAttention
from keras_impl.record.pair.attributes import attributes, chosen
from keras_impl.strategies.tensor_parallel import ColumnParallel, RowParallel, SplitDropout

# Each of these is a single module in PyTorch: the layers inside are not walked, except as a tree of their own.
WHOLE = (MultiheadAttention, ColumnParallel, RowParallel, SplitDropout)


class _Node(NamedTuple):
    """A layer and its path; `label` and `chosen` as in the survey."""

    path: str
    label: str
    chosen: str
    layer: Any


def named(model: Any) -> dict[str, Any]:
    """Return every layer or module by its first path; the model's is ""."""
    return {node.path: node.layer for node in nodes(model)}


def called(model: Any) -> dict[str, Any]:
    """Return the layers whose calls can be compared, by path, the model among them if it is a layer.

    The layers within a recurrent layer are left out, whose calls cannot be observed. Of a layer that is split by its
    columns, the shards are called, each under the name "@shard" and its number.
    """
    layers = {path: layer for path, layer in named(model).items() if isinstance(layer, keras.Layer)}
    recurrent = tuple(
        f"{path}/" if path else "" for path, layer in layers.items() if isinstance(layer, keras.layers.RNN)
    )
    result: dict[str, Any] = {}
    for path, layer in layers.items():
        if isinstance(layer, ColumnParallel):
            result |= {f"{path}@shard{number}": shard for number, shard in enumerate(layer.shards)}
        elif path == "" or not path.startswith(recurrent):
            result[path] = layer
    return result


def inner(model: Any) -> dict[str, Any]:
    """Return the layers within the model whose calls can be compared, by path."""
    return {path: layer for path, layer in called(model).items() if path}


def leaves(model: Any) -> set[str]:
    """Return the paths of the layers that can be compared and contain no other such layer."""
    paths = called(model)
    outer = {path[:end] for path in paths for end, sign in enumerate(path) if sign == "/"}
    return set(paths) - outer


def nodes(model: Any, repeated: bool = False) -> list[_Node]:
    """Return every layer or module once, at its first path; or, if `repeated`, at each of its paths."""
    every = list(_nodes(model))
    by_id: dict[int, _Node] = {}
    for node in every:
        by_id.setdefault(id(node.layer), node)
    return every if repeated else list(by_id.values())


def _nodes(layer: Any, path: str = "", label: str = "", own: str = "") -> Iterator[_Node]:
    """Yield a layer and all layers below it, with paths that are unique among siblings."""
    yield _Node(path, label, own, layer)
    counts: Counter[str] = Counter()
    held = attributes(layer)
    for name, child in () if path and isinstance(layer, WHOLE) else _children(layer):
        counts[name] += 1
        unique = name if counts[name] == 1 else f"{name}_{counts[name] - 1}"
        name = chosen(child, unique, held)
        yield from _nodes(child, _join(path, unique), _join(label, name or unique), _join(own, name))


def _children(layer: Any) -> Iterator[tuple[str, Any]]:
    """Yield (name, layer) for the layers directly below; a tf.Module's are named by their attributes."""
    if isinstance(layer, keras.Layer):
        for child in {id(child): child for child in layer._layers}.values():
            if not isinstance(child, keras.layers.InputLayer):
                yield str(child.name), child  # a name of NumPy's is no str to a JSON encoder
    elif isinstance(layer, tf.Module):
        inner = layer._flatten(recursive=False, predicate=_is_module, with_path=True)
        yield from {id(child): ("/".join(map(str, attribute_path)), child) for attribute_path, child in inner}.values()


def _join(path: str, name: str) -> str:
    return f"{path}/{name}" if path and name else path or name


def _is_module(value: Any) -> bool:
    return isinstance(value, (tf.Module, keras.Layer))
