"""The state of a user's model under canonical names, by the mapping of its weights.

Entry by entry, so that no second copy of the model is in memory.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from keras_impl.harness.pair import layers
from keras_impl.harness.pair.layers import Held
from keras_impl.harness.weights import SLOTS
from parity.core.arrays import Floats
from parity.core.errors import BackendError
from parity.pairs import transfer
from parity.trace import mapping
from parity.trace.mapping import Entry
from parity.trace.survey import Survey
from parity.trace.tensorfile import CODES

Array = np.ndarray


class Placed(NamedTuple):
    """An entry of the mapping, its variables, and the shapes of torch's weights."""

    entry: Entry
    held: list[Held]
    shapes: list[tuple[int, ...]]


class Weights:
    """A built model's. `torch`: the survey of its counterpart."""

    def __init__(self, model: Any, found: mapping.Mapping, torch: Survey):
        self.variables = layers.variables(model)
        self.told = {weight.name: weight for weight in torch.weights}
        by_name = {held.told.name: held for held in self.variables}
        self.placed = [
            Placed(entry, [by_name[name] for name in entry.keras], self._shapes(entry.torch)) for entry in found.entries
        ]
        self._ignored = {*found.ignored, *found.constants}

    def check(self) -> None:
        """Raises BackendError where a weight would stay at its random values."""
        covered = {held.told.name for placed in self.placed for held in placed.held} | self._ignored
        left = [held.told.name for held in self.variables if held.told.name not in covered]
        if left:
            raise BackendError(f"Keras's weights {', '.join(left)} have no values; map them in [[weights]]")

    def load(self, initial: Mapping[str, Floats]) -> None:
        """Give every mapped variable torch's values."""
        for entry, held, _ in self.placed:
            names = entry.torch
            if not all(name in initial for name in names):
                continue
            shapes = [each.told.shape for each in held]
            for each, values in zip(held, transfer.to_keras(entry, [initial[n] for n in names], shapes), strict=True):
                each.variable.assign(values.astype(each.told.dtype))

    def state(self, initial: Mapping[str, Floats]) -> Iterator[tuple[str, str, Array]]:
        """Kind, name and value of every parameter and buffer."""
        for entry, held, shapes in self.placed:
            names = entry.torch
            if all(name in initial for name in names):
                start = [initial[name] for name in names] if entry.combine == "sum" else None
                values = transfer.to_torch(entry, [array(each.variable) for each in held], shapes, start)
                yield from (self._seen(name, value) for name, value in zip(names, values, strict=True))

    def trained(self) -> list[Held]:
        """The variables that have gradients."""
        return [held for held in self.variables if held.told.trainable]

    def canonical_trained(self) -> list[str]:
        """torch's names of the weights that are trained here."""
        found = [entry for entry, held, _ in self.placed if any(each.told.trainable for each in held)]
        names = [(entry, name) for entry in found for name in entry.torch]
        return [name for entry, name in names if entry.combine != "sum" or self.told[name].trainable]

    def gradients(self, values: dict[str, tf.Tensor]) -> Iterator[tuple[str, Array]]:
        """By canonical name, from those of the variables, by their names, that have one.

        Where none has one, those that torch trains have zeros. Of a sum, parts that torch does not train are left out:
        its variable has a gradient for all of them.
        """
        for entry, held, shapes in self.placed:
            only_trained = entry.combine == "sum" or not any(each.told.name in values for each in held)
            if any(not only_trained or self.told[name].trainable for name in entry.torch):
                arrays = [_gradient(each, values) for each in held]
                found = zip(entry.torch, transfer.gradients_to_torch(entry, arrays, shapes), strict=True)
                yield from ((name, one) for name, one in found if not only_trained or self.told[name].trainable)

    def slots(self, optimizer: keras.optimizers.Optimizer) -> Iterator[tuple[str, Array]]:
        """The learning rate of the next step, and `parameter.slot`; of a sum only the first has any."""
        yield "learning_rate", np.asarray(optimizer.learning_rate, np.float64)
        slots = {slot: held for slot, attribute in SLOTS.items() if (held := getattr(optimizer, attribute, None))}
        for entry, held, shapes in self.placed:
            for slot, of_all in slots.items() if any(self.told[name].trainable for name in entry.torch) else ():
                yield from self._slot(entry, slot, [_slot(of_all, optimizer, each) for each in held], shapes)

    def _slot(
        self, entry: Entry, slot: str, arrays: list[Array], shapes: list[tuple[int, ...]]
    ) -> Iterator[tuple[str, Array]]:
        is_sum = entry.combine == "sum"
        zeros = [np.zeros(shape, arrays[0].dtype) for shape in shapes] if is_sum else None
        found = zip(entry.torch, transfer.to_torch(entry, arrays, shapes, zeros), strict=True)
        for name, value in [next(found)] if is_sum else found:
            yield f"{name}.{slot}", value

    def _seen(self, name: str, value: Array) -> tuple[str, str, Array]:
        """Kind, name and value as torch records a weight: a frozen parameter is a parameter too.

        Whole numbers are whole numbers, in whatever dtype Keras's variable counts them.
        """
        told = self.told[name]
        kind = "buffer" if told.statistic or told.constant else "parameter"
        whole = np.bool_ if told.dtype == "bool" else np.int64 if "int" in told.dtype else None
        if whole and np.array_equal(counted := value.astype(whole), value):
            value = counted
        return kind, name, value

    def _shapes(self, names: Iterable[str]) -> list[tuple[int, ...]]:
        return [self.told[name].shape for name in names]


def untrained(model: Any) -> Iterator[tuple[str, Array]]:
    """Yield name and value of what is neither trained nor a statistic, as it is now."""
    for held in layers.variables(model):
        if not held.told.trainable and held.told.role not in layers.STATISTICS:
            yield held.told.name, array(held.variable)


def array(tensor: Any) -> Array:
    """As a trace can hold it: complex numbers as pairs, whole numbers of 32 or 64 bits."""
    values = np.asarray(tf.convert_to_tensor(tensor))
    if values.dtype.kind == "c":
        values = np.stack([values.real, values.imag], -1)
    if values.dtype in CODES:
        return values
    return values.astype(np.int32 if values.dtype.itemsize < 4 else np.int64)


def _slot(slots: list[Any], optimizer: keras.optimizers.Optimizer, held: Held) -> Array:
    """Zeros of what Keras does not train."""
    if held.told.trainable:
        return array(slots[optimizer._get_variable_index(held.variable)])
    return np.zeros(held.told.shape, held.told.dtype)


def _gradient(held: Held, values: dict[str, tf.Tensor]) -> Array:
    """Zeros where it has none."""
    if held.told.name in values:
        return array(values[held.told.name])
    return np.zeros(held.told.shape, held.told.dtype)
