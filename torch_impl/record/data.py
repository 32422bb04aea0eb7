"""The data that a strategy trains on: a case's batches as tensors; the indices of the samples are recorded."""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch.utils import data

from parity.core.arrays import Floats
from parity.data.batches import Batch
from parity.runtime.drive import Run
from torch_impl.strategies import all_reduce
from torch_impl.strategies.single import MicroBatch

Inputs = tuple[torch.Tensor, ...]


def steps(run: Run) -> Iterator[list[MicroBatch]]:
    """Yield the micro-batches that this process trains on, step by step."""
    if run.case.distribution.samples_by_rank:
        yield from _sampled(run)
        return
    for parts in run.dataset.steps():
        run.drew(parts)
        yield [(*tensors(batch), batch.share) for batch in _own(run, parts)]


def evaluation(run: Run) -> Inputs:
    """Return the inputs of the evaluation after training."""
    parts = run.dataset.evaluation()
    run.drew([[part] for part in parts])
    (batch,) = _own(run, [[part] for part in parts])
    return tensors(batch)[0]


def example(run: Run) -> Inputs:
    """Return the inputs of the first micro-batch."""
    first = next(run.dataset.steps())
    return tensors(_own(run, first)[0])[0]


def tensors(batch: Batch) -> tuple[Inputs, torch.Tensor]:
    """Return a batch's inputs and target as tensors; floats get the run's dtype."""
    return tuple(map(_tensor, batch.inputs)), _tensor(batch.target)


class Samples(data.Dataset):
    """A torch Dataset that returns whole batches, and records which samples were asked for."""

    def __init__(self, run: Run):
        self.run = run

    def __len__(self) -> int:
        return self.run.dataset.size

    def __getitems__(self, indices: Sequence[int]) -> tuple[Inputs, torch.Tensor]:
        (recorder,) = self.run.recorders.values()
        batch = self.run.dataset.batch(np.asarray(indices, np.int64))
        recorder.drew(batch.indices)
        return tensors(batch)


def _sampled(run: Run) -> Iterator[list[MicroBatch]]:
    case = run.case
    for micro_batches in all_reduce.batches(Samples(run), case.data.batch, case.steps, case.seed):
        mean = case.loss.reduction == "mean"
        yield [(inputs, target, share if mean else 1.0) for inputs, target, share in micro_batches]


def _own(run: Run, parts: list[list[Batch]]) -> list[Batch]:
    """Return this process's part of a step: all parts as one for nn.DataParallel, which splits the batch itself."""
    if not run.case.distribution.is_gathered:
        return parts[next(iter(run.recorders))]
    batches = [batch for part in parts for batch in part]
    axis = run.dataset.batch_axis
    inputs = (np.concatenate(arrays, axis) for arrays in zip(*(batch.inputs for batch in batches), strict=True))
    target = np.concatenate([batch.target for batch in batches], axis)
    return [Batch(np.concatenate([batch.indices for batch in batches]), tuple(inputs), target)]


def _tensor(array: Floats) -> torch.Tensor:
    tensor = torch.from_numpy(array)
    tensor = tensor.to(torch.get_default_dtype()) if tensor.is_floating_point() else tensor
    return tensor.pin_memory() if torch.cuda.is_available() else tensor  # as a DataLoader with pin_memory=True does
