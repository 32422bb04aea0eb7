"""The order of the samples, and the batches that both backends train on."""

import copy
import hashlib
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from parity import random
from parity.config import schema
from parity.data import sources
from parity.errors import UsageError


class Batch(NamedTuple):
    """Some samples in canonical form: PyTorch's axis order, sequence-first for the transformer.

    `share` is this batch's part of its step: 1, or less for a micro-batch.
    """

    indices: NDArray[np.int64]
    inputs: tuple[sources.Array, ...]
    target: sources.Array
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

    def order(self) -> list[NDArray[np.int64]]:
        """The indices of each step's samples, and last those of the evaluation."""
        batch = self.case.data.batch
        return [self._indices(step * batch, batch) for step in range(self.case.steps)] + [self._indices(0, batch)]

    def reversed(self) -> "Dataset":
        """The same samples in the same batches, each batch the other way round."""
        other = copy.copy(self)
        other.backwards = not self.backwards
        return other

    def steps(self) -> Iterator[list[Batch]]:
        """One list of micro-batches per training step; a fresh order at each epoch."""
        for chosen in self.order()[:-1]:
            parts = np.array_split(chosen, self.case.accumulate)
            yield [self._batch(part, len(part) / len(chosen)) for part in parts]

    def evaluation(self) -> Batch:
        """The batch of the evaluation after training: the first one again."""
        return self._batch(self._indices(0, self.case.data.batch))

    def _indices(self, start: int, count: int) -> NDArray[np.int64]:
        epochs = range(start // self.size, (start + count - 1) // self.size + 1)
        order = [random.permutation(self.case.seed, f"order/{epoch}", self.size) for epoch in epochs]
        offset = start - epochs[0] * self.size
        return np.concatenate(order)[offset : offset + count]

    def _batch(self, indices: NDArray[np.int64], share: float = 1.0) -> Batch:
        indices = indices[::-1] if self.backwards else indices
        inputs = tuple(self._arranged(array[indices]) for array in self.inputs)
        target = np.zeros((len(indices), *self.output_shape)) if self.target is None else self.target[indices]
        return Batch(indices, inputs, self._arranged(target), share)

    def _arranged(self, array: sources.Array) -> sources.Array:
        return np.ascontiguousarray(np.swapaxes(array, 0, self.batch_axis))

    def _given(self, target: sources.Array | None) -> sources.Array:
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

    def _rounded(self, array: sources.Array) -> sources.Array:
        if np.issubdtype(array.dtype, np.floating):
            return random.representable(array * self.case.data.scale, self.case.precision)
        return array.astype(np.int64)


def _output_shape(model: schema.Model, sample: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of the model's output for one sample of the given shape."""
    match model:
        case schema.LinearStack():
            return (model.width,)
        case schema.SimpleBlock() | schema.TwoLinear():
            return (model.outputs,)
        case schema.ResidualBlock():
            return (model.out_channels, *sample[1:])
        case schema.Transformer():
            return (*sample, model.vocabulary)
