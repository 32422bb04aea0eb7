"""Faults of the initial parameters."""

from collections.abc import Callable

import numpy as np

from parity.core.arrays import Floats
from torch_impl.faults.mutate import Patches, loaded


def _of(ending: str, change: Callable[[Floats], Floats]) -> Patches:
    """Change the parameters whose names have this ending when they are loaded."""
    return loaded(lambda name, values: np.ascontiguousarray(change(values)) if name.endswith(ending) else values)


def _value_for_key(packed: Floats) -> Floats:
    query, key, value = np.split(packed, 3)
    return np.concatenate([query, value, key])


FAULTS: dict[str, Patches] = {
    "linear.weight": _of("weight", np.transpose),
    "conv2d.weight": _of("conv1.weight", lambda kernel: np.swapaxes(kernel, 2, 3)),
    "attention.packing": _of("in_proj_weight", _value_for_key),
}
