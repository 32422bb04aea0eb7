"""The order of the samples, and the batches that both backends train on."""

import copy
import hashlib
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from parity.config import schema, shards
from parity.config.shards import Indices
from parity.core import random
from parity.core.arrays import Array
from parity.core.errors import UsageError
from parity.data import sources


class Batch(NamedTuple):
    """Some samples in canonical form: PyTorch's axis order, sequence-first for the transformer.

    `share` is what this batch's loss weighs in that of its step, over all replicas: its part of the
    samples for a mean, 1 for a sum.
    """

    indices: Indices
    inputs: tuple[Array, ...]
    target: Array
    share: float = 1.0


class Dataset:
    """The samples of a case, at its precision. Raises UsageError where source and model do not fit.

    `batch_axis`: the axis of the samples in the arrays of a batch. `backwards`: each batch holds its
    samples in reverse.
    """

    def __init__(self, case: schema.Case) -> None:
        samples = sources.load(case)
        self.case = case
        self.backwards = False
        self.batch_axis = 1 if isinstance(case.model, schema.Transformer) else 0
        self.size = len(samples.inputs[0])
        self.inputs = tuple(self._rounded(array) for array in samples.inputs)
        self.output_shape = _output_shape(case.model, self.inputs[0].shape[1:])
        self.target = None if case.loss.target == "zeros" else self._rounded(self._given(samples.target))

    @property
    def digest(self) -> str:
        """SHA-256 over dtypes, shapes and bytes of every array."""
        sha = hashlib.sha256()
        for array in (*self.inputs, self.target):
            if array is not None:
                sha.update(f"{array.dtype}{array.shape}".encode())
                sha.update(np.ascontiguousarray(array).data)
        return sha.hexdigest()

    def reversed(self) -> "Dataset":
        """The same samples in the same batches, each batch the other way round."""
        other = copy.copy(self)
        other.backwards = not self.backwards
        return other

    def steps(self) -> Iterator[list[list[Batch]]]:
        """For each training step and each replica its micro-batches; a fresh order at each epoch."""
        batch = self.case.data.batch
        for step in range(self.case.steps):
            yield self._step(self._indices(step * batch, batch))

    def evaluation(self) -> list[Batch]:
        """The batch of the evaluation after training, one part for each replica: the first one again."""
        parts = shards.split(self._indices(0, self.case.data.batch), self.case)
        return [self.batch(part) for part in parts]

    def batch(self, indices: Indices, whole: int = 0) -> Batch:
        """The samples of these indices, as a part of a step of `whole` samples."""
        share = len(indices) / whole if whole and self.case.loss.reduction == "mean" else 1.0
        chosen = indices[::-1] if self.backwards else indices
        inputs = tuple(self._arranged(array[chosen]) for array in self.inputs)
        target = np.zeros((len(chosen), *self.output_shape)) if self.target is None else self.target[chosen]
        return Batch(indices, inputs, self._arranged(target), share)

    def _step(self, indices: Indices) -> list[list[Batch]]:
        return [
            [self.batch(part, len(indices)) for part in np.array_split(mine, self.case.accumulate)]
            for mine in shards.split(indices, self.case)
        ]

    def _indices(self, start: int, count: int) -> Indices:
        return order(self.case, self.size, start, count)

    def _arranged(self, array: Array) -> Array:
        return np.ascontiguousarray(np.swapaxes(array, 0, self.batch_axis))

    def _given(self, target: Array | None) -> Array:
        if target is None:
            raise UsageError(
                f"case {self.case.name!r}: the source {self.case.data.source!r} has no target for this model; "
                "set loss.target = 'zeros'"
            )
        expected = (self.size, *self.output_shape)
        if target.shape != (expected[:-1] if self.case.loss.kind == "cross_entropy" else expected):
            raise UsageError(
                f"case {self.case.name!r}: the target of {self.case.data.source!r} has the shape "
                f"{target.shape}, the model's output {expected}; set loss.target = 'zeros' or resize the model"
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
    """`count` of the samples in their endless order, a fresh permutation of all of them at each epoch."""
    epochs = range(start // size, (start + count - 1) // size + 1)
    permutations = [random.permutation(case.seed, f"order/{epoch}", size) for epoch in epochs]
    offset = start - epochs[0] * size
    return np.concatenate(permutations)[offset : offset + count]


def _output_shape(model: schema.Model, sample: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of the model's output for one sample of the given shape."""
    match model:
        case schema.LinearStack():
            return (model.width,)
        case schema.SimpleBlock() | schema.TwoLinear():
            return (model.outputs,)
        case schema.Specimen():
            return (model.classes,)
        case schema.ResidualBlock():
            return (model.out_channels, *sample[1:])
        case schema.Transformer():
            return (*sample, model.vocabulary)
    raise TypeError(f"the inputs of a {type(model).__name__} are not a dataset's")
