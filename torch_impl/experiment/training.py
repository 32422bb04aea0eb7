"""A user's model in training: brought to a step, whose forward pass can be repeated, and its optimizer's steps."""

import copy
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook

from parity.core.arrays import Array
from parity.core.program import find
from parity.core.script import is_script
from parity.diagnose.experiment import training as shared
from parity.diagnose.experiment.pieces import Again, Evidence, Steps, Way, steps, updated, updated_names
from parity.runtime.experiment import Question
from parity.runtime.job import ExperimentJob
from parity.trace.keys import MODEL
from torch_impl.instruments import script_calls
from torch_impl.record import calls
from torch_impl.record.masks import Masks
from torch_impl.record.pair import losses, training
from torch_impl.record.pair.build import call, tensors
from torch_impl.record.pair.optimizers import made
from torch_impl.record.pair.outputs import named
from torch_impl.record.pair.script import Script
from torch_impl.record.pair.vary import Instance
from torch_impl.record.weights import array


class Pass(NamedTuple):
    """The inputs of a forward pass, what it returns, and the loss of it."""

    inputs: dict[str, torch.Tensor]
    outputs: list[torch.Tensor]
    loss: torch.Tensor


class Training(shared.Training):
    """A built model, which can be brought to the state before a step of its training."""

    array = staticmethod(array)

    def __init__(self, job: ExperimentJob, built: Instance, stack: ExitStack) -> None:
        super().__init__(job, built, Masks(job.case.seed, 0, ordered=True).holding(job.case.model), stack)
        self._device, self._at = built.device, built.at
        stack.callback(register_optimizer_step_pre_hook(lambda optimizer, *_: self._keep_slots(optimizer)).remove)

    @torch.enable_grad()
    def _begin(self, step: int) -> None:
        train = self._pair.train
        script_calls.train(self._model, train is not None)
        if train is not None:
            if not self._training:
                self._stack.enter_context(self._masks.drawn(self._model))
            self._training = training.Training(
                self._case, self._model, self._data, self._halves, self._at, lambda _: self._observed()
            )
            for number in range(step):
                self._training.step(self._training.batch(number))
                self._masks.on_step()
            self._model.zero_grad()

    def _weights_now(self) -> Mapping[str, torch.Tensor]:
        return {name: tensor.detach().clone() for name, tensor in self._tensors().items()}

    @torch.no_grad()
    def _load(self, weights: Mapping[str, torch.Tensor]) -> None:
        for name, tensor in self._tensors().items():
            if name in weights and tensor.shape == weights[name].shape:
                tensor.copy_(weights[name])

    def _slots_now(self, optimizer: Optimizer) -> dict[str, Any]:
        return copy.deepcopy(optimizer.state_dict())

    def _load_slots(self, optimizer: Optimizer, slots: dict[str, Any]) -> None:
        optimizer.load_state_dict(slots)

    def _tensors(self) -> Mapping[str, torch.Tensor]:
        return {**dict(self._model.named_parameters()), **dict(self._model.named_buffers())}

    def _pass(self, step: int) -> Pass:
        if self._training:
            self._returned.clear()
            batch = self._training.batch(step)
            loss = self._training.loss(batch, self._number)
            returned = [tensor for outputs in self._returned for _, tensor in named(self._pair, outputs)]
            return Pass(batch.inputs, returned, loss)
        inputs = tensors(self._data.step(step), self._device)
        for tensor in inputs.values():
            tensor.requires_grad_(tensor.is_floating_point())
        outputs = call(self._model, self._pair, {name: tensor.clone() for name, tensor in inputs.items()})
        canonical = [tensor for _, tensor in named(self._pair, outputs)]
        return Pass(inputs, canonical, losses.probe(canonical, self._data))

    def _observed(self) -> ExitStack:
        return calls.observed({MODEL: self._model}, lambda _: None, lambda _, outputs: self._returned.append(outputs))

    def numbers(self) -> list[int | float]:
        """Return the numbers in a script's step, whose code is not run again."""
        text = self._pair.train.torch_step if self._pair.train else ""
        run = find("train.torch_step", text, self._halves.search).__self__ if is_script(text) else None
        return run.numbers() if isinstance(run, Script) else []

    def _updates(self, question: Question, evidence: Evidence) -> list[Way]:
        name, sides, few = question.tensor.key.partition("/")[2], steps(question), updated_names(evidence)
        every = list(sides[0].gradients[0])
        return [Way(*(self._moves(name, side, evidence, names) for side in sides)) for names in (few, every)]

    def _moves(self, name: str, given: Steps, evidence: Evidence, names: list[str]) -> Again:
        """Return how the optimizer moves these parameters, by their gradients."""

        def again() -> list[tuple[str, Array]]:
            self._restore()
            parameters, moved = {each: self._model.get_parameter(each) for each in names}, {}
            optimizer = made(self._case, list(parameters.values()), self._halves.search)
            for step, gradients in enumerate(given.gradients):
                for each, parameter in parameters.items():
                    parameter.grad = torch.from_numpy(np.array(gradients[each])).to(parameter)
                optimizer.step()
                for each, parameter in parameters.items() if step in given.recorded else ():
                    moved[updated(each, step)] = array(parameter - self._state[0][each])
            self._model.zero_grad()
            return [(name, evidence.pieces.joined(moved))]

        return again
