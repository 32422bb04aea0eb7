"""The first op that made a NaN or an infinity of finite numbers, if that reached something that matters."""

from typing import Any

import numpy as np
import tensorflow as tf

from keras_impl.harness.doctor.calls import Calls
from keras_impl.harness.doctor.origins import Origins
from parity.doctor.evidence import NotFinite, Place, Step

GIVEN = ("ReadVariableOp", "Const", "Fill", "Identity")  # what they give was not finite before, or is meant so


class Finite:
    """Follows values that are not finite from the op that made them."""

    def __init__(self, step: Step, calls: Calls, origins: Origins):
        self.step, self.calls, self.origins = step, calls, origins

    def see(self, operation: str, inputs: tuple[tf.Tensor, ...], outputs: list[tf.Tensor], place: Place) -> None:
        """An op ran."""
        bad = [tensor for tensor in outputs if not is_finite(tensor)]
        if not bad:
            return
        inherited = next((fault for tensor in inputs if (fault := self.origins.of(tensor).fault)), None)
        fault = inherited or self._made(operation, inputs, bad[0], place)
        for tensor in bad:
            self.origins.of(tensor).fault = fault

    def reached(self, tensor: tf.Tensor) -> None:
        """A loss or a gradient."""
        self.step.not_finite = self.step.not_finite or self.origins.of(tensor).fault

    def returned(self, outputs: list[Any]) -> None:
        """What a module returned: minus infinity alone is what masks are made of."""
        for tensor in outputs:
            if isinstance(tensor, tf.Tensor) and self.origins.of(tensor).fault and not (_values(tensor) < np.inf).all():
                self.reached(tensor)

    def _made(self, operation: str, inputs: tuple[tf.Tensor, ...], output: tf.Tensor, place: Place) -> NotFinite | None:
        """Of finite numbers; or a NaN of infinities that were meant, as in a softmax of a row that is all masked."""
        values, made = [_values(tensor) for tensor in inputs if tensor.dtype.is_floating], _values(output)
        nan = bool(np.isnan(made).any())
        spoilt = [np.isnan(array).any() if nan else not np.isfinite(array).all() for array in values]
        if any(spoilt) or operation in GIVEN or (operation == "Cast" and bool((made < np.inf).all())):
            return None
        return NotFinite(
            operation=operation,
            became="nan" if nan else "inf",
            smallest=min((float(array.min()) for array in values if array.size), default=None),
            largest=max((float(array.max()) for array in values if array.size), default=None),
            place=place,
        )


def is_finite(tensor: tf.Tensor) -> bool:
    """Whether all numbers in it are."""
    return not tensor.dtype.is_floating or bool(np.isfinite(_values(tensor)).all())


def _values(tensor: tf.Tensor) -> Any:
    return tensor._numpy()  # `numpy` is what the user calls
