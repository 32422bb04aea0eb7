"""The batches that both backends train on, and the order of the samples in them."""

import copy
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from parity.config import devices, schema
from parity.config.devices import Indices
from parity.core import random
from parity.core.arrays import Array, digest
from parity.core.errors import UsageError
from parity.data import sources


class Batch(NamedTuple):
    """A batch in canonical form: PyTorch's axis order, sequence-first for the transformer.

    `share` is the weight of this batch's loss in the loss of its step over all replicas and micro-batches:
    its fraction of the step's samples if the loss is a mean, 1 if it is a sum.
    """

    indices: Indices
    inputs: tuple[Array, ...]
    target: Array
    share: float = 1.0


class Dataset:
    """The samples of a case, rounded to its run precision. Raises UsageError if source and model do not fit.

    `batch_axis`: the axis of the samples in the arrays of a batch. `backwards`: whether each batch holds its
    samples in reverse order.
    """

    def __init__(self, case: schema.Case) -> None:
        samples = sources.load(case)
        self.case = case
        self.backwards = False
        self.batch_axis = case.model.batch_axis
        self.size = len(samples.inputs[0])
        self.inputs = tuple(self._rounded(array) for array in samples.inputs)
        self.output_shape = case.model.output_shape(self.inputs[0].shape[1:])
        self.target = None if case.loss.target == "zeros" else self._rounded(self._given(samples.target))

    @property
    def digest(self) -> str:
        """SHA-256 of the dtypes, shapes and bytes of all arrays."""
        return digest(("", array) for array in (*self.inputs, self.target) if array is not None)

    def reversed(self) -> "Dataset":
        """Return a dataset of the same batches, with the samples of each batch in reverse order."""
        other = copy.copy(self)
        other.backwards = not self.backwards
        return other

    def steps(self) -> Iterator[list[list[Batch]]]:
        """Yield, for each training step, a list for each replica of its micro-batches."""
        batch = self.case.data.batch
        for step in range(self.case.steps):
            yield self._step(order(self.case, self.size, step * batch, batch))

    def evaluation(self) -> list[Batch]:
        """Return the batch of the evaluation after training, one part per replica: the first step's batch again."""
        indices = order(self.case, self.size, 0, self.case.data.batch)
        return [self.batch(part) for part in devices.split(indices, self.case)]

    def batch(self, indices: Indices, whole: int = 0) -> Batch:
        """Return the samples of these indices as a batch of a step with `whole` samples (0: of no training step)."""
        share = len(indices) / whole if whole and self.case.loss.reduction == "mean" else 1.0
        chosen = indices[::-1] if self.backwards else indices
        inputs = tuple(self._arranged(array[chosen]) for array in self.inputs)
        target = np.zeros((len(chosen), *self.output_shape)) if self.target is None else self.target[chosen]
        return Batch(indices, inputs, self._arranged(target), share)

    def _step(self, indices: Indices) -> list[list[Batch]]:
        return [
            [self.batch(part, len(indices)) for part in np.array_split(of_replica, self.case.accumulate)]
            for of_replica in devices.split(indices, self.case)
        ]

    def _arranged(self, array: Array) -> Array:
        return np.ascontiguousarray(np.swapaxes(array, 0, self.batch_axis))

    def _given(self, target: Array | None) -> Array:
        if target is None:
            raise UsageError(
                f"case {self.case.name!r}: the data source {self.case.data.source!r} has no target for this model; "
                "set loss.target = 'zeros'"
            )
        expected = (self.size, *self.output_shape)
        if target.shape != (expected[:-1] if self.case.loss.kind == "cross_entropy" else expected):
            raise UsageError(
                f"case {self.case.name!r}: the target of the data source {self.case.data.source!r} has the shape "
                f"{target.shape}, but the model's output has {expected}; set loss.target = 'zeros' or resize the model"
            )
        if self.case.loss.kind == "cross_entropy":
            sources.check_ids(self.case, target, self.output_shape[-1], "classes")
        else:
            sources.check_numbers(self.case, target)
        return target

    def _rounded(self, array: Array) -> Array:
        if np.issubdtype(array.dtype, np.floating):
            return random.representable(array * self.case.data.scale, self.case.precision)
        return array.astype(np.int64)


def order(case: schema.Case, size: int, start: int, count: int) -> Indices:
    """Return `count` sample indices from position `start` on, where each epoch is a new permutation of all samples."""
    epochs = range(start // size, (start + count - 1) // size + 1)
    permutations = [random.permutation(case.seed, f"order/{epoch}", size) for epoch in epochs]
    offset = start - epochs[0] * size
    return np.concatenate(permutations)[offset : offset + count]
