"""The data that a strategy trains on: a case's batches as tensors; the indices of the samples are recorded."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_impl.instruments import devices
from keras_impl.record.canonical import own
from keras_impl.record.pair.build import tensor
from keras_impl.strategies import all_reduce, single
from parity.data.batches import Batch
from parity.runtime.drive import Run

Inputs = tuple[tf.Tensor, ...]


def steps(run: Run) -> Any:
    """Return an iterable of the micro-batches of each step.

    If there are several replicas, a step lists them by replica; fit and distributed datasets get whole batches instead.
    """
    strategy = run.case.distribution
    if strategy.samples_by_rank:
        return _sampled(run)
    if strategy.distribute_dataset:
        return single.dataset(_whole(run))
    return _whole(run) if strategy.fit else _micro_batches(run)


def evaluation(run: Run) -> Any:
    """Return the inputs of the evaluation after training, listed by replica if there are several."""
    parts = run.dataset.evaluation()
    run.drew([[part] for part in parts])
    return _listed(run, [tensors(run, part, replica)[0] for replica, part in enumerate(parts)])


def input_shape(run: Run) -> tuple:
    """Return the argument of model.build: a shape, or a tuple with one for each input."""
    inputs = run.dataset.evaluation()[0].inputs
    shapes = [(None, *own(array, run.case.model).shape[1:]) for array in inputs]
    return tuple(shapes) if len(shapes) > 1 else shapes[0]


def tensors(run: Run, batch: Batch, replica: int = 0) -> tuple[Inputs, tf.Tensor]:
    """Return a batch's inputs and target as tensors, in the model's axis order, on the replica's device."""
    with tf.device(_place(run, replica)):
        inputs = tuple(tensor(own(array, run.case.model)) for array in batch.inputs)
        return inputs, tensor(own(batch.target, run.case.model))


class Samples:
    """The samples as one replica reads them: whole batches, by indices, which are recorded."""

    def __init__(self, run: Run, replica: int):
        self.run, self.replica = run, replica

    def __len__(self) -> int:
        return self.run.dataset.size

    def __getitems__(self, indices: Sequence[int]) -> tuple[Inputs, tf.Tensor]:
        batch = self.run.dataset.batch(np.asarray(indices, np.int64))
        self.run.recorders[self.replica].drew(batch.indices)
        return tensors(self.run, batch, self.replica)


def _sampled(run: Run) -> Iterator[list[list[single.MicroBatch]]]:
    case = run.case
    samples = [Samples(run, replica) for replica in range(case.replicas)]
    for parts in all_reduce.batches(samples, case.data.batch, case.steps, case.seed):
        mean = case.loss.reduction == "mean"
        yield [[(inputs, target, share if mean else tensor(np.float64(1)))] for [(inputs, target, share)] in parts]


def _micro_batches(run: Run) -> Iterator[list]:
    for parts in run.dataset.steps():
        run.drew(parts)
        of_replicas = [[_micro_batch(run, batch, replica) for batch in part] for replica, part in enumerate(parts)]
        yield _listed(run, of_replicas)


def _whole(run: Run) -> Iterator[list[single.MicroBatch]]:
    """Yield whole batches; TensorFlow must split them into the parts that are recorded here as drawn."""
    for parts in run.dataset.steps():
        run.drew(parts)
        indices = np.concatenate([batch.indices for part in parts for batch in part])
        yield [_micro_batch(run, run.dataset.batch(indices, len(indices)), 0)]


def _micro_batch(run: Run, batch: Batch, replica: int) -> single.MicroBatch:
    with tf.device(_place(run, replica)):
        share = tensor(np.float64(batch.share))
    return (*tensors(run, batch, replica), share)


def _place(run: Run, replica: int) -> str | None:
    """Return the device on which tf.distribute expects a replica's part, or None: other strategies move it."""
    return devices.names(run.case.devices)[replica] if run.case.distribution.is_mirrored else None


def _listed(run: Run, of_replicas: list) -> Any:
    return of_replicas if run.case.distribution.is_replicated else of_replicas[0]
