"""A user's model that is built once and called many times, on varied inputs, in inference or training mode."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import nn

from parity.config.schema import Case
from parity.core.arrays import Floats
from parity.core.errors import BackendError
from parity.pairs.vary.coverage import Draw, Observer
from parity.runtime.job import VaryJob
from torch_impl.instruments import devices
from torch_impl.record import precision
from torch_impl.record.masks import Masks
from torch_impl.record.pair import values
from torch_impl.record.pair.branches import observed
from torch_impl.record.pair.build import call, ready, tensors
from torch_impl.record.pair.outputs import named
from torch_impl.record.pair.run import fast_paths, without_fast_paths
from torch_impl.record.pair.state import python_state
from torch_impl.record.promotion import promoted
from torch_impl.record.weights import array


@contextmanager
def opened(job: VaryJob, at: str, weights: Mapping[str, Floats], given: dict[str, np.ndarray]) -> Iterator["Instance"]:
    """Build the model with these weights, as for a recorded run, and yield an Instance that can be called.

    `given` holds the pair's inputs; only Keras's half needs them, to make its weights.
    """
    device = devices.find(job.case).logical[0]
    with precision.policy(at), promoted(at) as promotions:
        model = ready(job.case, at, job.pair.search, device, promotions)
        load = partial(values.load, model, weights, Path(job.pair.survey))
        load()
        with without_fast_paths(model):
            yield Instance(job.case, model, at, device, load, promotions)


class Instance:
    """A built model, with the values that its buffers had before the first call.

    `load` gives it its weights, and `promotions` lists its float32 computations that were promoted so far.
    """

    def __init__(
        self,
        case: Case,
        model: nn.Module,
        at: str,
        device: torch.device,
        load: Callable[[], object],
        promotions: Sequence[str] = (),
    ) -> None:
        self.case, self.model, self.at, self.device = case, model, at, device
        self._buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
        self._state = python_state(model)
        self._load, self._parameters, self._promotions = load, list(model.parameters()), promotions
        self._versions = self._written()

    def call(
        self, inputs: dict[str, np.ndarray], training: bool | None, observer: Observer
    ) -> list[tuple[str, np.ndarray]]:
        """Return the model's outputs by name; in training mode its dropout draws shared masks.

        Without `training` the model is called as users call it, in inference. Raises UsageError and BackendError for
        inputs that the model does not take.
        """
        self.model.train(bool(training))
        if training is None:
            return self._called_plainly(inputs)
        with ExitStack() as stack:
            stack.enter_context(precision.autocast(self.at, self.device.type))
            masks = _NotifyingMasks(self.case.seed, observer)
            stack.enter_context(masks.drawn(self.model, training))
            stack.enter_context(observed(self.model, observer))
            outputs = call(self.model, self.case.model, tensors(inputs, self.device))
        observer.states |= masks.repeats.states
        return [(name, array(tensor)) for name, tensor in named(self.case.model, outputs)]

    def _called_plainly(self, inputs: dict[str, np.ndarray]) -> list[tuple[str, np.ndarray]]:
        """Call the model with PyTorch's fast paths, and without gradients unless it computes some itself.

        A torch function mode, such as that which promotes float32, keeps PyTorch from its fast paths: where nothing was
        promoted it is left.
        """
        with ExitStack() as stack:
            stack.enter_context(Masks(self.case.seed, 0, ordered=True).drawn(self.model, training=False))
            stack.enter_context(fast_paths())
            stack.enter_context(precision.autocast(self.at, self.device.type))
            stack.enter_context(nullcontext() if self._promotions else torch._C.DisableTorchFunction())
            try:
                with torch.no_grad():
                    outputs = call(self.model, self.case.model, tensors(inputs, self.device))
            except BackendError:
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
        """Give all that a call may change the value that it had before the first call."""
        self._state.restore()
        self.reload_written()
        self.reset_variables()

    def reset_variables(self) -> None:
        """Give the buffers the values that they had before the first call."""
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
