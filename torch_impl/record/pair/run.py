"""One recorded run of a user's model: a forward and a backward pass, or some steps of training."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from parity.runtime.drive import Account, Run
from parity.trace.layout import Layout
from torch_impl.instruments import devices
from torch_impl.record import precision
from torch_impl.record.layout_recorder import LayoutRecorder
from torch_impl.record.masks import Masks
from torch_impl.record.pair import losses, values
from torch_impl.record.pair.build import Inputs, call, ready, tensors, user_errors
from torch_impl.record.pair.optimizers import made
from torch_impl.record.pair.outputs import Named, named
from torch_impl.record.probe import Probe
from torch_impl.record.promotion import promoted


def run(run: Run) -> Account:
    """Build the user's model anew, load the run's weights into it, and record what it does."""
    machine = devices.find(run.case)
    device = machine.logical[0]
    with precision.policy(run.at), promoted(run.at) as promotions:
        model = ready(run.case, run.at, run.pair.search, device, promotions)
        values.load(model, run.weights, Path(run.pair.survey))
        with without_fast_paths(model):
            state = values.Weights(model)
            probe = Probe(run, model, state, LayoutRecorder(machine, replicas=1))
            _Course(run, model, probe, device).run()
    parameters = {name: [0] for name in state.trained}
    return Account(Layout(devices=machine.names[:1], parameters=parameters), probe.modules, promotions)


@contextmanager
def without_fast_paths(model: nn.Module) -> Iterator[None]:
    """Make the model call its modules one by one within the block.

    The fast path of transformer layers calls none of their inner modules, which would then go unrecorded.
    """
    was_enabled = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with ExitStack() as stack:
            if any(isinstance(module, nn.RNNBase) for module in model.modules()):
                # cuDNN's recurrent kernels have no backward pass in inference mode.
                stack.enter_context(torch.backends.cudnn.flags(enabled=False, allow_tf32=False))
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(was_enabled)


class _Course:
    """The sequence of passes and updates that one run consists of."""

    def __init__(self, run: Run, model: nn.Module, probe: Probe, device: torch.device) -> None:
        self.model, self.probe, self.device = model, probe, device
        self.case, self.pair, self.data, self.at = run.case, run.case.model, run.dataset, run.at
        self.search, self.recorder = run.pair.search, run.recorders[0]

    def run(self) -> None:
        """Run the training steps and an evaluation if the pair has [train], else one pass in inference mode.

        The single pass is forward and backward, or forward alone with backward = false.
        """
        self.probe.on_step()
        if self.pair.train is None:
            self.model.eval()
            if self.pair.backward:
                self._gradients(0)
            else:
                with torch.no_grad(), self._autocast():
                    self._forward(self._inputs(0))
            self.recorder.next_step()
            return
        self._train()
        self.model.eval()
        with torch.no_grad(), self._autocast():
            self._forward(self._inputs(0))
        self.recorder.next_step()

    def _train(self) -> None:
        self.model.train()
        parameters = [part for parts in self.probe.weights.trained.values() for part in parts]
        optimizer = self.probe.weights.optimizer = made(self.case, parameters, self.search)
        masks = Masks(self.case.seed, 0, ordered=True)
        with masks.drawn(self.model):  # around all steps, because it looks through every loaded file
            for step in range(self.case.steps):
                self._gradients(step)
                with user_errors("the optimizer's step fails"):
                    optimizer.step()
                self.probe.on_step()
                masks.on_step()
                self.model.zero_grad()

    def _gradients(self, step: int) -> None:
        """Run the forward pass, loss and backward pass of one step."""
        inputs = self._inputs(step)
        for tensor in inputs.values():
            tensor.requires_grad_(tensor.is_floating_point())
        with self._autocast():
            outputs, by_name = self._forward(inputs)
            value, target = self._scalar(outputs, [tensor for _, tensor in by_name], step)
        self.probe.loss(value, target)
        if value.requires_grad:
            with user_errors(f"torch={self.pair.torch}: backward fails"):
                value.backward()
        self.probe.gradients(inputs)

    def _autocast(self) -> torch.autocast:
        return precision.autocast(self.at, self.device.type)

    def _scalar(self, outputs: Any, tensors: list[torch.Tensor], step: int) -> losses.Scalar:
        if self.pair.train is None:
            return losses.probe(tensors, self.data)
        return losses.training(self.pair, outputs, tensors, self.data, step, self.search)

    def _forward(self, inputs: Inputs) -> tuple[Any, Named]:
        """Return the outputs as the model returned them, and as a list of (name, tensor).

        The model gets copies of the inputs, since it may modify them in place.
        """
        copies = {name: tensor.clone() for name, tensor in inputs.items()}
        with self.probe.forward(list(copies.values())):
            outputs = call(self.model, self.pair, copies)
        by_name = named(self.pair, outputs)
        self.probe.outputs(by_name)
        return outputs, by_name

    def _inputs(self, step: int) -> Inputs:
        return tensors(self.data.step(step), self.device)
