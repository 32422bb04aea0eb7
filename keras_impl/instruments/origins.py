"""Where each tensor comes from: an input, a parameter, a module's output, a constant.

Tensors are held weakly. An op that only moves, casts or views a tensor passes its origin on. Other facts about a tensor
are kept here as well: the module that made it, and the devices it was copied to.
"""

import weakref
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from tensorflow.python.framework import ops  # the class of eager tensors is not public

from keras_impl.instruments import devices
from keras_impl.instruments.names import Variable
from parity.doctor.evidence import Code, NotFinite, Tensor
from parity.doctor.rewrite import Spot

MOVES = ("Identity", "Cast", "Reshape", "Transpose", "Squeeze", "ExpandDims", "StridedSlice", "Split")
CONSTANT = "constant"


@dataclass
class Known:
    """What is known of a tensor."""

    origin: str = ""
    made: str = ""  # the user's line that made it
    module: str = ""  # the module whose call made it
    recorded: bool = False  # by a tape, so it carries a gradient
    activation: str = ""  # whose output it is, at most reshaped: "softmax"
    without: Code | None = None  # the user's line without that activation
    by_class: Code | None = None  # the user's line that made a softmax over another axis, with the last one
    picked: Spot | None = None  # where its rows were put into another order
    scaled: bool = False  # a scalar that the user's line multiplied or divided
    average: Code | None = None  # of a mean over the samples of one replica, the line that is right for several
    fault: NotFinite | None = None  # the cause, if it is not finite
    copied: set[str] = field(default_factory=set)  # the devices that have a copy


class Origins:
    """Knows the origin of each tensor."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[tf.Tensor], Known]] = {}
        self.constants: dict[str, set[int]] = {}  # hashes of the values that each line has made tensors of
        self._devices: dict[str, str] = {}  # from TensorFlow's device names to the user's

    def of(self, tensor: Any) -> Known:
        """Return what is known of a tensor, in an object that can be written to."""
        reference, known = self._known.get(id(tensor), (None, None))
        if reference is None or known is None or reference() is not tensor:
            return self.note(tensor, Known())
        return known

    def note(self, tensor: Any, known: Known) -> Known:
        """Set what is known of a tensor."""
        key = id(tensor)
        if isinstance(tensor, tf.Tensor):
            self._known[key] = weakref.ref(tensor, lambda gone: self._forget(key, gone)), known
        return known

    def note_inputs(self, inputs: Mapping[str, Any]) -> None:
        """Set the origin of the step's inputs."""
        for name, value in inputs.items():
            for tensor in tensors(value):
                self.note(tensor, Known(f"input {name}"))

    def note_variables(self, variables: Iterable[Variable]) -> None:
        """Set the origin of variables' handles, which reads of them inherit."""
        for variable in variables:
            kind = "parameter" if variable.parameter else "buffer"
            for copy in copies(variable.variable):
                self.note(copy.handle, Known(f"{kind} {variable.name}", module=variable.module))

    def note_output(self, module: str, outputs: Any) -> None:
        """Set the origin of a module's outputs, except those that already have one (an inner module's, or inputs)."""
        for tensor in tensors(outputs):
            known = self.of(tensor)
            known.origin = known.origin or f"output of {module}"

    def describe(self, tensor: Any) -> Tensor:
        """Describe a tensor as evidence; of a variable its first copy."""
        if isinstance(tensor, np.ndarray):
            return Tensor(device="CPU:0", dtype=tensor.dtype.name, shape=list(tensor.shape))
        if isinstance(tensor, keras.Variable):
            tensor = copies(tensor)[0]
        known = self.of(tensor if isinstance(tensor, tf.Tensor) else tensor.handle)
        device, dtype, shape = self.device(tensor), tensor.dtype.name, list(tensor.shape)
        return Tensor(device=device, dtype=dtype, shape=shape, origin=known.origin, made=known.made)

    def device(self, tensor: Any) -> str:
        """Return the device of a tensor or variable as the user's code names it."""
        in_memory = isinstance(tensor, tf.Tensor) and tensor.dtype != tf.resource
        return self.device_named(tensor.backing_device if in_memory else tensor.device)

    def device_named(self, device: str) -> str:
        """Return the user's name of a TensorFlow device; cached, because it is needed for every op."""
        if device not in self._devices:
            self._devices[device] = devices.name(device)
        return self._devices[device]

    def _forget(self, key: int, gone: weakref.ref[tf.Tensor]) -> None:
        if key in self._known and self._known[key][0] is gone:
            del self._known[key]


def tensors(value: Any) -> list[Any]:
    """Return all tensors, variables and arrays in a nest of containers."""
    kinds = (ops.EagerTensor, keras.Variable, np.ndarray)
    return [leaf for leaf in tf.nest.flatten(value) if isinstance(leaf, kinds)]


def copies(variable: Any) -> list[tf.Variable]:
    """Return the TensorFlow variables that a Keras variable consists of: one per replica."""
    value = getattr(variable, "_value", variable)
    return list(getattr(value, "values", ())) or [value]


def size(tensor: tf.Tensor) -> int:
    """Return a tensor's size in bytes."""
    return tensor.dtype.size * tensor._num_elements()
