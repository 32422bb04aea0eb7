"""What the program copies between devices, and where it makes the host wait; one entry per line and kind."""

from typing import Any

import tensorflow as tf

from keras_impl.instruments import source
from keras_impl.instruments.calls import Calls
from keras_impl.instruments.frames import View
from keras_impl.instruments.origins import CONSTANT, Known, Origins, size
from parity.doctor import rewrite
from parity.doctor.evidence import Step
from parity.doctor.evidence.common import Place
from parity.doctor.evidence.ops import Copy, What

HOST = "CPU:0"
SMALL = 64  # bytes; shapes and learning rates are smaller
NO_NUMBERS = frozenset((tf.resource, tf.variant, tf.string))


class Copies:
    """Collects the copies of a step."""

    def __init__(self, step: Step, calls: Calls, origins: Origins):
        self.step, self.calls, self.origins = step, calls, origins
        self._kinds: dict[tuple[Any, ...], Copy] = {}

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
            home = self.origins.device(tensor)
            if home != HOST and operation == "Where":
                self.note("boolean_index", tensor, (home, home), view)
            elif home != HOST:
                self.note("print", tensor, (home, HOST), view)

    def _see_moved(self, operation: str, tensor: tf.Tensor, target: str, view: View) -> None:
        """Note an op's input that is on another device than the op, unless it is small or copied before."""
        facts = self.origins.of(tensor)
        is_requested = operation == "Identity" and view.direct
        is_repeated = target in facts.copied
        if _is_small(tensor, facts) or (is_repeated and not is_requested):
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


def _is_small(tensor: tf.Tensor, known: Known) -> bool:
    """Return whether a copy is too small to report.

    Scalars, shapes and int32 (which ops take from the host anyway) are, unless they have a name.
    """
    named = known.origin not in ("", CONSTANT, "loss", "gradient")
    return not named and (size(tensor) < SMALL or tensor.dtype == tf.int32)
