"""Copies of a script's models, such as target networks, which begin with the same weights."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

Copy = tuple[Any, Any]  # a layer, and the model that it is a copy of


def copies(models: Iterable[Any], layers: Sequence[Any]) -> list[Copy]:
    """Return the layers beside models whose weights are equal to all of a model's, such as a target network."""
    return [(each, of) for of in models if of.built for each in layers if each is not of and _holds(each, of)]


def copy_to(pairs: Iterable[Copy]) -> list[Copy]:
    """Give the weights of models to their copies, which are left to themselves then: none is returned."""
    for each, of in pairs:
        for variable, own in zip(each.weights, of.weights, strict=True):
            variable.assign(own)
    return []


def _holds(layer: Any, model: Any) -> bool:
    if not set(map(id, layer.weights)).isdisjoint(map(id, model.weights)):  # as what is within a Sequential has
        return False
    weights = [list(map(tf.convert_to_tensor, each.weights)) for each in (layer, model)] if layer.built else [[], []]
    return 0 < len(weights[0]) == len(weights[1]) and all(map(np.array_equal, *weights))
