"""Where the user's lines read a tensor on the host, which has to wait for it, and where host values become tensors."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import numpy as np
import tensorflow as tf
from tensorflow.python import pywrap_tfe
from tensorflow.python.eager.polymorphic_function.polymorphic_function import (
    Function,
)  # the class of what tf.function returns
from tensorflow.python.framework import constant_op, ops  # the functions that make and read eager tensors

from keras_impl.instruments import source
from keras_impl.instruments.copies import HOST, SMALL, Copies
from keras_impl.instruments.frames import View, look
from keras_impl.instruments.origins import CONSTANT, Known, size
from parity.doctor.evidence.ops import What
from parity.doctor.evidence.training import Cut

METHODS: dict[str, What] = {
    "numpy": "numpy",
    "__array__": "numpy",
    "__bool__": "bool",
    "__float__": "item",
    "__int__": "item",
    "__index__": "item",
    "__str__": "print",
    "__repr__": "print",
    "__format__": "print",
}
THROUGH_KERAS = "convert_to_numpy"


class Reads:
    """Records reads as copies, and the cuts of gradients that they make."""

    def __init__(self, copies: Copies):
        self.copies, self.step, self.origins = copies, copies.step, copies.origins
        self._earlier = {line: set(values) for line, values in self.origins.constants.items()}
        self._read: list[tuple[tf.Tensor, np.ndarray]] = []  # read while a tape recorded
        self._within_function = False  # in a function that AutoGraph converts, run eagerly for once

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Observe reads within the block."""
        with ExitStack() as patches:
            for name, what in METHODS.items():
                patches.enter_context(self._patched(ops._EagerTensorBase, name, what))
            for name in ("array", "asarray"):
                patches.enter_context(self._patched(np, name, "numpy"))
            patches.enter_context(self._patched(ops._EagerTensorBase, "cpu", "cpu"))
            patches.enter_context(mock.patch.object(Function, "__call__", self._function(Function.__call__)))
            convert = constant_op.convert_to_eager_tensor
            patches.enter_context(mock.patch.object(constant_op, "convert_to_eager_tensor", self._converted(convert)))
            yield

    def _patched(self, owner: Any, name: str, what: What) -> Any:
        """Return a patch of a reading function that notes the user's reads and how long each takes."""
        read = getattr(owner, name)

        def called(*args: Any, **kwargs: Any) -> Any:
            is_converted = what == "bool" and self._within_function  # AutoGraph turns an `if` there into a tf.cond
            if is_converted or not args or not isinstance(args[0], ops.EagerTensor) or not _is_users():
                return read(*args, **kwargs)
            start = time.perf_counter()
            result = read(*args, **kwargs)
            self._see(what, args[0], result, time.perf_counter() - start)
            return result

        return mock.patch.object(owner, name, called)

    def _function(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap the call of a tf.function to know when the running code is one that AutoGraph converts."""

        def called(function: Function, *args: Any, **kwargs: Any) -> Any:
            was_within, self._within_function = self._within_function, self._within_function or function._autograph
            try:
                return call(function, *args, **kwargs)
            finally:
                self._within_function = was_within

        return called

    def _see(self, what: What, tensor: tf.Tensor, result: Any, seconds: float) -> None:
        home = self.origins.device(tensor)
        if home != HOST:
            self.copies.note(what, tensor, (home, HOST), look(), seconds)
        if what == "numpy" and pywrap_tfe.TFE_Py_TapeSetShouldRecordBackprop([tensor]):
            self._read.append((tensor, result))

    def _converted(self, convert: Callable[..., tf.Tensor]) -> Callable[..., tf.Tensor]:
        """Wrap the conversion of values to tensors, to note constants in the user's lines."""

        def converted(value: Any, *args: Any, **kwargs: Any) -> tf.Tensor:
            tensor = convert(value, *args, **kwargs)
            if tensor is not value and size(tensor) >= SMALL and (view := look()).direct:
                self._note_constant(value, tensor, view)
            return tensor

        return converted

    def _note_constant(self, value: Any, tensor: tf.Tensor, view: View) -> None:
        """Note a constant, and a cut if its values were read from a tensor that a tape recorded.

        That is so if it shares memory with the array that was read, or has its shape.
        """
        self.origins.note(tensor, Known(CONSTANT, view.line, self.copies.calls.module))
        home, values = self.origins.device(tensor), hash(tensor._numpy().tobytes())
        self.origins.constants.setdefault(view.line, set()).add(values)
        if home != HOST and values in self._earlier.get(view.line, {values}):  # others are new in each step
            self.copies.note("constant", tensor, (HOST, home), view)
        for read, array in self._read:
            if isinstance(value, np.ndarray) and (value.shape == array.shape or np.may_share_memory(value, array)):
                place = self.copies.calls.place(view)
                self.step.cuts.append(Cut(what="numpy", tensor=self.origins.describe(read), place=place))
                break


def _is_users() -> bool:
    """Return whether a line of the user's reads; TensorFlow and Keras read on their own as well."""
    frame = sys._getframe(2)
    if frame.f_code.co_name == THROUGH_KERAS:
        return look().direct
    return source.kind(frame.f_code.co_filename) == source.USER
