"""A model's outputs as tensors under canonical names: those that [outputs] names, or all in order."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf
from einops import rearrange

from parity.config.pair import Pair
from parity.core.errors import UsageError
from parity.pairs.weights.patterns import reverse
from parity.runtime import returned
from parity.trace.keys import MODEL, numbered


class Output(NamedTuple):
    """An output tensor in this side's axis order.

    `layout` is the einops pattern from the canonical axis order to this one, and `name` the name in [outputs].
    `is_number` if it was a number or an array of numbers, which has no gradient.
    """

    key: str
    name: str
    tensor: tf.Tensor
    layout: str = ""
    is_number: bool = False

    @property
    def canonical(self) -> tf.Tensor:
        """Return the tensor in canonical axis order."""
        return rearrange(self.tensor, reverse(self.layout)) if self.layout else self.tensor


def ordered(outputs: Any, keys: Sequence[returned.Path]) -> Any:
    """Return the outputs in torch's order, if `keys` gives that; UsageError if Keras's outputs have other keys."""
    return [leaf.value for leaf in returned.in_order(keys, returned.compared(outputs, _is_tensor))] if keys else outputs


def named(pair: Pair, outputs: Any) -> list[tuple[str, tf.Tensor]]:
    """Return (name, tensor) for each output that [outputs] names, else for all in order.

    Without [outputs] the names are "(model)", "(model)#1", and so on, and numbers are included. Raises UsageError if a
    named output does not exist, or if there is no tensor at all.
    """
    return [(output.key, output.canonical) for output in laid_out(pair, outputs)]


def describe_returned(pair: Pair, outputs: Any) -> returned.Returned:
    """Return what the report needs to know about the outputs; empty if [outputs] names them."""
    return returned.Returned() if pair.outputs else returned.returned(outputs, _is_tensor)


def laid_out(pair: Pair, outputs: Any, layouts: Mapping[str, str] = {}) -> list[Output]:
    """Return what the model returned, with layouts by key for outputs that the pair's file gives none.

    Raises UsageError if it has no tensor or number, or lacks a named output.
    """
    if pair.outputs:
        values = [
            (name, returned.chosen("keras", name, spec.keras, outputs, _is_tensor), spec.keras_layout)
            for name, spec in pair.outputs.items()
        ]
    else:
        values = [("", leaf.value, "") for leaf in returned.compared(outputs, _is_tensor)]
    if not values:
        raise UsageError(f"keras={pair.keras}: the model returned {type(outputs).__name__}, expected tensors")
    keys = [f"{MODEL}.{name}" if name else numbered(MODEL, n) for n, (name, *_) in enumerate(values)]
    return [
        Output(key, name, _tensor(value), layout or layouts.get(key, ""), not _is_tensor(value))
        for key, (name, value, layout) in zip(keys, values, strict=True)
    ]


def flat(value: Any) -> Iterator[tf.Tensor]:
    """Yield every tensor of a structure in its own order, skipping None."""
    return (_tensor(leaf.value) for leaf in returned.leaves(value, _is_tensor) if _is_tensor(leaf.value))


def _is_tensor(value: Any) -> bool:
    return isinstance(value, (tf.Variable, tf.IndexedSlices)) or tf.is_tensor(value)


def _tensor(value: Any) -> tf.Tensor:
    """Convert to a tensor; numbers get the run's precision."""
    if _is_tensor(value):
        return value if isinstance(value, tf.Tensor) else tf.convert_to_tensor(value)
    array = returned.numbers(value)
    return tf.constant(array, keras.config.floatx() if array.dtype.kind == "f" else None)
