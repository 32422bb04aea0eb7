"""Faults of the initial parameters."""

import math
from collections.abc import Callable

import numpy as np

from keras_impl.faults.mutate import Patches, loaded
from parity.core import random
from parity.core.arrays import Floats


def _of(ending: str, change: Callable[[Floats], Floats]) -> Patches:
    """Change the parameters whose names have this ending when they are loaded."""
    return loaded(lambda name, values: change(values) if name.endswith(ending) else values)


def _query_for_key(packed: Floats) -> Floats:
    query, key, value = np.split(packed, 3)
    return np.concatenate([key, query, value])


def _not_loaded(name: str, values: Floats) -> Floats:
    """Leave linear2 at an initialization like Keras's: Glorot uniform, and a bias of zeros."""
    if name == "linear2.weight":
        bound = math.sqrt(6 / sum(values.shape))
        return random.representable(random.uniform(1, "glorot", values.shape, bound), "float32")
    return np.zeros_like(values) if name == "linear2.bias" else values


FAULTS: dict[str, Patches] = {
    "linear.weight": _of("weight", np.transpose),
    "conv2d.weight": _of("conv1.weight", lambda kernel: np.swapaxes(kernel, 2, 3)),
    "conv2d.flipped": _of("conv.weight", lambda kernel: kernel[:, :, ::-1, ::-1]),
    "conv_transpose": _of("up.weight", lambda kernel: np.swapaxes(kernel, 0, 1)),
    "attention.packing": _of("in_proj_weight", _query_for_key),
    "initialisation": loaded(_not_loaded),
}
