"""Batches that the program's own data loaders draw: they are inputs, and no worker should return what another did."""

from typing import Any
from unittest import mock
from weakref import WeakKeyDictionary

import torch
from torch.utils.data import IterableDataset
from torch.utils.data.dataloader import _BaseDataLoaderIter  # the base class of all iterators

from parity.doctor.evidence import Step
from parity.doctor.evidence.common import Place
from parity.doctor.evidence.ops import Repeated
from torch_impl.instruments import source, values
from torch_impl.instruments.origins import Origins, tensors

Seen = dict[tuple[int, float, float], int]  # the number of a batch, by its numbers


class Loaders:
    """Watches the program's data loaders, whose iterators may live for several steps."""

    def __init__(self, origins: Origins):
        self.origins = origins
        self._seen: WeakKeyDictionary[_BaseDataLoaderIter, Seen] = WeakKeyDictionary()

    def watched(self, step: Step) -> Any:
        """Return a patch within which batches are noted in this step."""
        self.step = step
        draw = _BaseDataLoaderIter.__next__

        def drawn(loader: _BaseDataLoaderIter) -> Any:
            batch = draw(loader)
            for tensor in tensors(batch):
                self.origins.note(tensor, "input batch")
            self._compare(loader, tensors(batch))
            return batch

        return mock.patch.object(_BaseDataLoaderIter, "__next__", drawn)

    def _compare(self, loader: _BaseDataLoaderIter, batch: list[torch.Tensor]) -> None:
        """Note a batch that is the same as an earlier one of another worker.

        Batches of one sample, and of values that are all the same, may well come twice.
        """
        workers, number = loader._num_workers, loader._num_yielded - 1
        floats = [tensor for tensor in batch if tensor.is_floating_point() and tensor.dim() and len(tensor) > 1]
        if workers < 2 or not floats:
            return
        numbers = values.numbers(floats[0])
        key = numbers.size, numbers.norm, numbers.mark
        first = self._seen.setdefault(loader, {}).setdefault(key, number)
        if not numbers.constant and first % workers != number % workers:
            repeated = Repeated(batch=number, first=first, workers=workers, place=Place(source=source.line()))
            repeated.whole = isinstance(loader._dataset, IterableDataset)
            self.step.repeated.append(repeated)
