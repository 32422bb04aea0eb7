"""Tensors that go from device to device, and what makes the host wait; one entry for each line and kind."""

from typing import Any

import tensorflow as tf

from keras_impl.harness.doctor import source
from keras_impl.harness.doctor.calls import Calls
from keras_impl.harness.doctor.frames import View
from keras_impl.harness.doctor.origins import CONSTANT, Known, Origins, size
from parity.doctor import rewrite
from parity.doctor.evidence import Copy, Place, Step, What

HOST = "CPU:0"
SMALL = 64  # bytes: shapes, learning rates
NO_NUMBERS = frozenset((tf.resource, tf.variant, tf.string))


class Copies:
    """Notes them in the step."""

    def __init__(self, step: Step, calls: Calls, origins: Origins):
        self.step, self.calls, self.origins = step, calls, origins
        self._kinds: dict[tuple[Any, ...], Copy] = {}

    def see(self, operation: str, inputs: tuple[tf.Tensor, ...], target: str, view: View) -> None:
        """An op ran on a device."""
        if operation in ("StringFormat", "Where") and view.direct:
            self._see_wait(operation, inputs, view)
        elif not view.strategy:  # replicas exchange gradients: that is no accident
            for tensor in inputs:
                if self.origins.device(tensor) != target and tensor.dtype not in NO_NUMBERS:
                    self._see_moved(operation, tensor, target, view)

    def note(
        self, what: What, tensor: tf.Tensor, ways: tuple[str, str], view: View, seconds: float = 0, again: bool = False
    ) -> None:
        """`ways`: from where to where. What was moved again was there already: TensorFlow keeps what it copied."""
        known, place = self.origins.of(tensor), self._place(tensor, view)
        key = (what, *ways, place.source, place.phase, known.origin)
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
        """tf.print; or an op whose result has as many rows as there are True, which the host has to know."""
        for tensor in inputs:
            home = self.origins.device(tensor)
            if home != HOST and operation == "Where":
                self.note("boolean_index", tensor, (home, home), view)
            elif home != HOST:
                self.note("print", tensor, (home, HOST), view)

    def _see_moved(self, operation: str, tensor: tf.Tensor, target: str, view: View) -> None:
        known = self.origins.of(tensor)
        asked = operation == "Identity" and view.direct
        again = target in known.copied
        if _is_small(tensor, known) or (again and not asked):
            return
        known.copied.add(target)
        what: What = "to" if asked else "constant" if known.origin == CONSTANT else "implicit"
        self.note(what, tensor, (self.origins.device(tensor), target), view, again=again)

    def _place(self, tensor: tf.Tensor, view: View) -> Place:
        """In the backward pass: the module that had made the tensor."""
        place = self.calls.place(view)
        if place.phase == "backward":
            place.module = place.module or self.origins.of(tensor).module
        return place


def _is_small(tensor: tf.Tensor, known: Known) -> bool:
    """Of numbers and shapes, and of int32, which ops take from the host, only what has a name is told."""
    named = known.origin not in ("", CONSTANT, "loss", "gradient")
    return not named and (size(tensor) < SMALL or tensor.dtype == tf.int32)
