"""What the program copies between devices, and where it makes the host wait; one entry per line and kind.

The host waits where the user's lines read a tensor. Where they make a tensor of values that were read, a gradient ends.
"""

import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any
from unittest import mock

import numpy as np
import tensorflow as tf
from tensorflow.python import pywrap_tfe
from tensorflow.python.eager.polymorphic_function.polymorphic_function import Function  # what tf.function returns
from tensorflow.python.framework import constant_op, ops  # the functions that make and read eager tensors

from keras_impl.instruments import source
from keras_impl.instruments.calls import Calls
from keras_impl.instruments.origins import CONSTANT, Known, Origins, size
from keras_impl.instruments.source import View, look
from parity.core.patches import applied, around
from parity.doctor import rewrite
from parity.doctor.evidence import Copy, Cut, Place, Step, What

METHODS: dict[str, What] = {
    **dict.fromkeys(("numpy", "__array__"), "numpy"),
    "__bool__": "bool",
    **dict.fromkeys(("__float__", "__int__", "__index__"), "item"),
    **dict.fromkeys(("__str__", "__repr__", "__format__"), "print"),
}
THROUGH_KERAS = "convert_to_numpy"
HOST = "CPU:0"
SMALL = 64  # bytes; shapes and learning rates are smaller
NO_NUMBERS = frozenset((tf.resource, tf.variant, tf.string))


class Copies:
    """Collects the copies of a step, the host's reads among them, and the cuts of gradients that these make."""

    def __init__(self, step: Step, calls: Calls, origins: Origins):
        self.step, self.calls, self.origins = step, calls, origins
        self._kinds: dict[tuple[Any, ...], Copy] = {}
        self._earlier = {line: set(values) for line, values in self.origins.constants.items()}
        self._read: list[tuple[tf.Tensor, np.ndarray]] = []  # read while a tape recorded
        self._within_function = False  # in a function that AutoGraph converts, run eagerly for once

    def see(self, operation: str, inputs: tuple[tf.Tensor, ...], target: str, view: View) -> None:
        """Note one op that ran on a device."""
        if operation in ("StringFormat", "Where") and view.direct:
            self._see_wait(operation, inputs, view)
        elif not view.strategy:  # replicas exchange gradients on purpose
            for tensor in inputs:
                if self.origins.device(tensor) != target and tensor.dtype not in NO_NUMBERS:
                    self._see_moved(operation, tensor, target, view)

    def note(
        self, what: What, tensor: tf.Tensor, ways: tuple[str, str], view: View, seconds: float = 0, again: bool = False
    ) -> None:
        """Add a copy to the step's evidence; `ways` holds source and target device.

        `again` says that the tensor was on the target before. Its bytes are not counted then, since TensorFlow keeps
        its copies.
        """
        facts, place = self.origins.of(tensor), self._place(tensor, view)
        key = (what, *ways, place.source, place.phase, facts.origin)
        if key not in self._kinds:
            described = self.origins.describe(tensor)
            self._kinds[key] = Copy(what=what, source=ways[0], target=ways[1], tensor=described, place=place, count=0)
            if what in ("item", "cpu", "numpy"):
                self._kinds[key].mended = rewrite.code(source.spot(), rewrite.Expression.unwrapped)
            self.step.copies.append(self._kinds[key])
        copy = self._kinds[key]
        copy.count += 1
        copy.again += again
        copy.bytes += 0 if again else size(tensor)
        copy.seconds += seconds

    def _see_wait(self, operation: str, inputs: tuple[tf.Tensor, ...], view: View) -> None:
        """Note a wait: tf.print, or an op whose result has as many rows as there are True values."""
        for tensor in inputs:
            if (home := self.origins.device(tensor)) != HOST:
                what, target = ("boolean_index", home) if operation == "Where" else ("print", HOST)
                self.note(what, tensor, (home, target), view)

    def _see_moved(self, operation: str, tensor: tf.Tensor, target: str, view: View) -> None:
        """Note an op's input that is on another device than the op, unless it is small or copied before."""
        facts = self.origins.of(tensor)
        is_requested = operation == "Identity" and view.direct
        is_repeated = target in facts.copied
        # Scalars, shapes and int32 (which ops take from the host anyway) are small, unless they have a name.
        is_named = facts.origin not in ("", CONSTANT, "loss", "gradient")
        is_small = not is_named and (size(tensor) < SMALL or tensor.dtype == tf.int32)
        if is_small or (is_repeated and not is_requested):
            return
        facts.copied.add(target)
        what: What = "to" if is_requested else "constant" if facts.origin == CONSTANT else "implicit"
        self.note(what, tensor, (self.origins.device(tensor), target), view, again=is_repeated)

    def _place(self, tensor: tf.Tensor, view: View) -> Place:
        """Return the current place; in the backward pass, with the module that made the tensor."""
        place = self.calls.place(view)
        if place.phase == "backward":
            place.module = place.module or self.origins.of(tensor).module
        return place

    def watched(self) -> AbstractContextManager[None]:
        """Return a context in which reads are observed."""
        tensor = ops._EagerTensorBase
        reads = [(tensor, name, what) for name, what in METHODS.items()]
        reads += [(np, "array", "numpy"), (np, "asarray", "numpy"), (tensor, "cpu", "cpu")]
        patches = [around(owner, name, partial(self._read_by, what)) for owner, name, what in reads]
        made = around(constant_op, "convert_to_eager_tensor", self._convert)
        return applied([*patches, around(Function, "__call__", self._call), made])

    def _read_by(self, what: What, read: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Read a tensor; note the user's reads and how long each takes."""
        is_converted = what == "bool" and self._within_function  # AutoGraph turns an `if` there into a tf.cond
        if is_converted or not args or not isinstance(args[0], ops.EagerTensor) or not _is_users():
            return read(*args, **kwargs)
        start = time.perf_counter()
        result = read(*args, **kwargs)
        seconds, home = time.perf_counter() - start, self.origins.device(args[0])
        if home != HOST:
            self.note(what, args[0], (home, HOST), look(), seconds)
        if what == "numpy" and pywrap_tfe.TFE_Py_TapeSetShouldRecordBackprop([args[0]]):
            self._read.append((args[0], result))
        return result

    def _call(self, call: Callable[..., Any], function: Function, /, *args: Any, **kwargs: Any) -> Any:
        """Call a tf.function; note when the running code is one that AutoGraph converts."""
        with mock.patch.object(self, "_within_function", self._within_function or function._autograph):
            return call(function, *args, **kwargs)

    def _convert(self, convert: Callable[..., tf.Tensor], value: Any, *args: Any, **kwargs: Any) -> tf.Tensor:
        tensor = convert(value, *args, **kwargs)
        if tensor is not value and size(tensor) >= SMALL and (view := look()).direct:
            self._note_constant(value, tensor, view)
        return tensor

    def _note_constant(self, value: Any, tensor: tf.Tensor, view: View) -> None:
        """Note a constant, and a cut if its values were read from a tensor that a tape recorded."""
        # That is so if it shares memory with the array that was read, or has its shape.
        self.origins.note(tensor, Known(CONSTANT, view.line, self.calls.module))
        home, values = self.origins.device(tensor), hash(tensor._numpy().tobytes())
        self.origins.constants.setdefault(view.line, set()).add(values)
        if home != HOST and values in self._earlier.get(view.line, {values}):  # others are new in each step
            self.note("constant", tensor, (HOST, home), view)
        for read, array in self._read:
            if isinstance(value, np.ndarray) and (value.shape == array.shape or np.may_share_memory(value, array)):
                place = self.calls.place(view)
                self.step.cuts.append(Cut(what="numpy", tensor=self.origins.describe(read), place=place))
                break


def _is_users() -> bool:
    """Return whether a line of the user's reads; TensorFlow and Keras read on their own as well."""
    frame = sys._getframe(3)  # of what calls the function in whose place _read_by is called
    if frame.f_code.co_name == THROUGH_KERAS:
        return look().direct
    return source.kind(frame.f_code.co_filename) == source.USER
