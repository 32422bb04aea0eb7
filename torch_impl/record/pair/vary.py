"""A user's model that is built once and called many times, on varied inputs, in inference or training mode."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import nn

from parity.config.schema import Case
from parity.core.arrays import Floats
from parity.pairs.coverage import Draw, Observer
from parity.runtime.job import VaryJob
from torch_impl.instruments import devices
from torch_impl.record import precision
from torch_impl.record.masks import Masks
from torch_impl.record.pair import values
from torch_impl.record.pair.branches import observed
from torch_impl.record.pair.build import call, ready, tensors
from torch_impl.record.pair.outputs import named
from torch_impl.record.pair.run import without_fast_paths
from torch_impl.record.promotion import promoted
from torch_impl.record.weights import array


@contextmanager
def opened(job: VaryJob, at: str, weights: Mapping[str, Floats], given: dict[str, np.ndarray]) -> Iterator["Instance"]:
    """Build the model with these weights, as for a recorded run, and yield an Instance that can be called.

    `given` holds the pair's inputs; only Keras's half needs them, to make its weights.
    """
    device = devices.find(job.case).logical[0]
    with precision.policy(at), promoted(at):
        model = ready(job.case, at, job.pair.search, device, [])
        load = partial(values.load, model, weights, Path(job.pair.survey))
        load()
        with without_fast_paths(model):
            yield Instance(job.case, model, at, device, load)


class Instance:
    """A built model, with the values that its buffers had before the first call; `load` gives it its weights."""

    def __init__(self, case: Case, model: nn.Module, at: str, device: torch.device, load: Callable[[], object]) -> None:
        self.case, self.model, self.at, self.device = case, model, at, device
        self._buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
        self._load, self._parameters = load, list(model.parameters())
        self._versions = self._written()

    def call(self, inputs: dict[str, np.ndarray], training: bool, observer: Observer) -> list[tuple[str, np.ndarray]]:
        """Return the model's outputs by name; in training mode its dropout draws shared masks.

        Raises UsageError and BackendError for inputs that the model does not take.
        """
        self.model.train(training)
        with ExitStack() as stack:
            stack.enter_context(torch.no_grad())
            stack.enter_context(precision.autocast(self.at, self.device.type))
            if training:
                stack.enter_context(_NotifyingMasks(self.case.seed, observer).drawn(self.model))
            stack.enter_context(observed(self.model, observer))
            outputs = call(self.model, self.case.model, tensors(inputs, self.device))
        return [(name, array(tensor)) for name, tensor in named(self.case.model, outputs)]

    def reload_written(self) -> None:
        """Load the weights again if a call has written to them, as that of an nn.Embedding with max_norm does."""
        if self._written() != self._versions:
            self._load()
            self._versions = self._written()

    def _written(self) -> list[int]:
        """Return how often each parameter has been written to."""
        return [parameter._version for parameter in self._parameters]

    def reset(self) -> None:
        """Restore the buffers to their values before the first call."""
        with torch.no_grad():
            for name, buffer in self.model.named_buffers():
                if name in self._buffers and buffer.shape == self._buffers[name].shape:
                    buffer.copy_(self._buffers[name])


class _NotifyingMasks(Masks):
    """Shared masks, with the observer notified of each draw."""

    def __init__(self, seed: int, observer: Observer) -> None:
        super().__init__(seed, 0, ordered=True)
        self.observer = observer

    def dropped(self, x: torch.Tensor, rate: float) -> torch.Tensor:
        """Return x after the dropout of the module that is being called."""
        self.observer.draws.append(Draw(float(rate), x.numel()))
        return super().dropped(x, rate)
