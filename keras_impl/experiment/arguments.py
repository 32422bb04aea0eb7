"""The arguments of a layer's call, and the other side's in their place, in canonical axes."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from parity.core.arrays import Array
from parity.diagnose.experiment.inputs import near, source


def exchanged_arguments(arguments: dict[str, Any], known: Sequence[tuple[Array, Array]]) -> dict[str, Any] | None:
    """Return the arguments of a call with the other side's tensors in place of its own.

    `known`: pairs of a tensor of this side and the other side's, in torch's axes. Returns None if one of the arguments
    is not among them, or if all are the same on both sides.
    """
    own = [mine for mine, _ in known]
    leaves = tf.nest.flatten(arguments)
    changed = list(leaves)
    is_other = False
    for number, leaf in enumerate(leaves):
        if isinstance(leaf, (tf.Tensor, np.ndarray)) and tf.as_dtype(leaf.dtype).is_floating:
            if (canonical := source(_array(leaf), own)) is None:
                return None
            mine, theirs = known[canonical.number]
            changed[number] = like(np.transpose(theirs, canonical.axes), leaf)
            is_other = is_other or not near(mine, theirs)
    return tf.nest.pack_sequence_as(arguments, changed) if is_other else None


def _array(tensor: Any) -> Array:
    """Return a copy of a tensor as an array of float64, int64 or bool."""
    dtype = tf.as_dtype(tensor.dtype)
    return np.array(tensor).astype(np.float64 if dtype.is_floating else np.bool_ if dtype.is_bool else np.int64)


def like(array: Array, tensor: Any) -> tf.Tensor:
    """Return a tensor of an array's numbers, of the dtype of another tensor."""
    return tf.constant(array, dtype=tensor.dtype)
