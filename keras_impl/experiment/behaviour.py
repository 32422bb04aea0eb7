"""A layer's answers to chosen inputs, in canonical axes."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_impl.instruments.origins import tensors
from parity.core.arrays import Array
from parity.diagnose.experiment import probes
from parity.diagnose.experiment.inputs import source
from parity.diagnose.experiment.probes import Responses
from parity.diagnose.experiment.properties import near


def inputs(args: tuple, kwargs: dict[str, Any]) -> list[Array]:
    """Return the tensors that a call takes, in the order of its arguments."""
    return [_array(tensor) for tensor in tensors((args, kwargs)) if _holds_numbers(tensor)]


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
            if (place := source(_array(leaf), own)) is None:
                return None
            mine, theirs = known[place.number]
            changed[number] = like(np.transpose(theirs, place.axes), leaf)
            is_other = is_other or not near(mine, theirs)
    return tf.nest.pack_sequence_as(arguments, changed) if is_other else None


def answered(
    call: Callable[..., Any],
    args: tuple,
    kwargs: dict[str, Any],
    canonical: Sequence[Array],
) -> Responses:
    """Return what a layer answers to the probes.

    Args:
        call: calls the layer, in float64, and returns the output in question as an array in canonical axes, or
            tensors in these axes, of which the first counts.
        args: the arguments of the call in the pair's run; tensors among them are replaced.
        kwargs: those given by name.
        canonical: the inputs that the probes are made of, the same for both sides.
    """
    structure = (args, kwargs)
    leaves = tf.nest.flatten(structure)
    sources = {
        number: found
        for number, leaf in enumerate(leaves)
        if isinstance(leaf, (tf.Tensor, np.ndarray))
        and _holds_numbers(leaf)
        and (found := source(_array(leaf), canonical))
    }

    def answer(probe: Sequence[Array]) -> Array:
        changed = [
            like(np.transpose(probe[sources[number].number], sources[number].axes), leaf) if number in sources else leaf
            for number, leaf in enumerate(leaves)
        ]
        arguments, named = tf.nest.pack_sequence_as(structure, changed)
        result = call(*arguments, **named)
        return result if isinstance(result, np.ndarray) else _array(tensors(result)[0])

    return probes.responses(answer, canonical)


def _holds_numbers(tensor: Any) -> bool:
    """Return whether a tensor holds real numbers or truth values, rather than complex numbers or texts."""
    dtype = tf.as_dtype(tensor.dtype)
    return dtype.is_floating or dtype.is_integer or dtype.is_bool


def _array(tensor: Any) -> Array:
    """Return a copy of a tensor as an array of float64, int64 or bool."""
    dtype = tf.as_dtype(tensor.dtype)
    return np.array(tensor).astype(np.float64 if dtype.is_floating else np.bool_ if dtype.is_bool else np.int64)


def like(array: Array, tensor: Any) -> tf.Tensor:
    """Return a tensor of an array's numbers, of the dtype of another tensor."""
    return tf.constant(array, dtype=tensor.dtype)
