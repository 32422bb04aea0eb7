"""Which tensor is which: an input, a parameter, what a module returned, a constant.

Tensors are held weakly. An op that only moves, casts or views a tensor hands the origin on. What was seen of a tensor
beside that (the module that made it, where it was copied to) is kept here too.
"""

import weakref
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from tensorflow.python.framework import ops  # the class of tensors that have values has no public door

from keras_impl.harness import pretend
from keras_impl.harness.doctor.names import Variable
from parity.doctor import evidence
from parity.doctor.rewrite import Spot

MOVES = ("Identity", "Cast", "Reshape", "Transpose", "Squeeze", "ExpandDims", "StridedSlice", "Split")
CONSTANT = "constant"


@dataclass
class Known:
    """What is known of a tensor."""

    origin: str = ""
    made: str = ""  # the line
    module: str = ""  # that ran the op
    recorded: bool = False  # by a tape, so that it carries a gradient
    straight: bool = False  # made by a linear layer, reshaped at most
    activation: str = ""  # that made it, reshaped at most: "softmax"
    without: evidence.Code | None = None  # the user's line without it
    picked: Spot | None = None  # where its rows were put into another order
    scaled: bool = False  # a number, multiplied or divided by another in the user's line
    fault: evidence.NotFinite | None = None  # what made it not finite
    copied: set[str] = field(default_factory=set)  # the devices that have a copy


class Origins:
    """Says of a tensor whence it came."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[tf.Tensor], Known]] = {}
        self._devices: dict[str, str] = {}  # TensorFlow's names of them, and the user's

    def of(self, tensor: Any) -> Known:
        """What is known of it; to be written to."""
        reference, known = self._known.get(id(tensor), (None, None))
        if reference is None or known is None or reference() is not tensor:
            return self.note(tensor, Known())
        return known

    def note(self, tensor: Any, known: Known) -> Known:
        """It is this from now on."""
        key = id(tensor)
        if isinstance(tensor, tf.Tensor):
            self._known[key] = weakref.ref(tensor, lambda gone: self._forget(key, gone)), known
        return known

    def note_inputs(self, inputs: Mapping[str, Any]) -> None:
        """What the step is given."""
        for name, value in inputs.items():
            for tensor in tensors(value):
                self.note(tensor, Known(f"input {name}"))

    def note_variables(self, variables: Iterable[Variable]) -> None:
        """What is read of them is theirs."""
        for each in variables:
            kind = "parameter" if each.parameter else "buffer"
            for copy in copies(each.variable):
                self.note(copy.handle, Known(f"{kind} {each.name}", module=each.module))

    def note_output(self, module: str, outputs: Any) -> None:
        """What a module returned, unless an inner one had, or it was given to it as it is."""
        for tensor in tensors(outputs):
            known = self.of(tensor)
            known.origin = known.origin or f"output of {module}"

    def describe(self, tensor: Any) -> evidence.Tensor:
        """As evidence; of a variable its first copy."""
        if isinstance(tensor, np.ndarray):
            return evidence.Tensor(device="CPU:0", dtype=tensor.dtype.name, shape=list(tensor.shape))
        if isinstance(tensor, keras.Variable):
            tensor = copies(tensor)[0]
        known = self.of(tensor if isinstance(tensor, tf.Tensor) else tensor.handle)
        return evidence.Tensor(
            device=self.device(tensor),
            dtype=tensor.dtype.name,
            shape=list(tensor.shape),
            origin=known.origin,
            made=known.made,
        )

    def device(self, tensor: Any) -> str:
        """Where a tensor or a variable is, as the user's code names it."""
        in_memory = isinstance(tensor, tf.Tensor) and tensor.dtype != tf.resource
        return self.device_named(tensor.backing_device if in_memory else tensor.device)

    def device_named(self, device: str) -> str:
        """The same of TensorFlow's name of a device; it is asked for with every op."""
        if device not in self._devices:
            self._devices[device] = pretend.name(device)
        return self._devices[device]

    def _forget(self, key: int, gone: weakref.ref[tf.Tensor]) -> None:
        if key in self._known and self._known[key][0] is gone:
            del self._known[key]


def tensors(value: Any) -> list[Any]:
    """All tensors, variables and arrays in it."""
    kinds = (ops.EagerTensor, keras.Variable, np.ndarray)
    return [leaf for leaf in tf.nest.flatten(value) if isinstance(leaf, kinds)]


def copies(variable: Any) -> list[tf.Variable]:
    """The variables of TensorFlow's that a variable of Keras's consists of: one for each replica."""
    value = getattr(variable, "_value", variable)
    return list(getattr(value, "values", ())) or [value]


def size(tensor: tf.Tensor) -> int:
    """In bytes."""
    return tensor.dtype.size * tensor._num_elements()
