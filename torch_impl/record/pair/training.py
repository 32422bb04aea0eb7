"""The training of a user's model, step by step, as its user runs it, and what is seen of a step from outside.

A step is the plain loop of PyTorch's tutorials (docs/pairs.md shows it), or the user's own (`torch_step`). Where a
pair accepts a difference, it holds Adam's epsilon, that of clipping and running variances as Keras has them: then all
that follows is equal.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.optim import Optimizer

from parity.config.pair import SAMPLE_WEIGHT, TARGET
from parity.config.schema import Case
from parity.core.patches import left_with, setting
from parity.core.program import load
from parity.data.pairs import PairData
from parity.pairs import structure
from parity.runtime import survey
from parity.trace.mapping import PairContext
from torch_impl.instruments import script_calls
from torch_impl.record import precision
from torch_impl.record.pair import losses
from torch_impl.record.pair.build import Inputs, call, tensor, tensors, user_errors
from torch_impl.record.pair.optimizers import Before, Gradients, StepObserver, gradients_of, made
from torch_impl.record.pair.sides import Setup


class Batch(NamedTuple):
    """The data of a step: its number, and the inputs by canonical name."""

    number: int
    inputs: Inputs


class Step(NamedTuple):
    """What a step computed: its losses, and the gradients."""

    losses: list[torch.Tensor]
    target: torch.Tensor
    gradients: Gradients
    # The gradients as the optimizer has applied them, where its hooks may have changed them.
    applied: Mapping[int, torch.Tensor] = {}
    returns_loss: bool = True  # whether the loss is that of a plain step, or one that a step of the user's own returned
    updates: bool = True  # whether an optimizer is called
    # Of the optimizers that such a step calls, the learning rates at that time.
    rates: Mapping[Optimizer, float | None] = {}
    before: Sequence[Before] = ()  # what came before each of them was called first


class Training:
    """The training of a built model, at a precision, by an optimizer of its own.

    `observed` returns a context for what calls the model, given the inputs. `on_return` is called with what the whole
    model returns in a plain step. `setup`: how the model is called, and each batch is cut.
    """

    def __init__(
        self,
        case: Case,
        model: nn.Module,
        data: PairData,
        halves: PairContext,
        at: str,
        observed: Callable[[list[torch.Tensor]], AbstractContextManager[Any]] = lambda _: nullcontext(),
        on_return: Callable[[Any], None] = lambda _: None,
        setup: Setup | None = None,
    ) -> None:
        self.case, self.pair, self.model, self._data, self._halves = case, case.model, model, data, halves
        self._observed, self._on_return = observed, on_return
        self._setup = setup or Setup(case)
        self.trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self.device = next((each.device for each in model.parameters()), torch.device("cpu"))
        self._mixed = precision.autocast(at, self.device.type)
        self.optimizer = made(case, self.trained, halves.search)

    def batch(self, number: int, part: PairData | None = None) -> Batch:
        """Return the data of a step, or a part of it: of one that cuts its batch, the first part."""
        return Batch(number, tensors((part or self._setup.parts(self._data)[0]).step(number), self.device))

    def step(self, batch: Batch, record: Callable[[Step], None] = lambda _: None) -> None:
        """Run a training step, and let what it computed be recorded; in a plain step that may be before the update."""
        if self.pair.train.torch_step:
            record(self._own_step(batch))
            return
        self.optimizer.zero_grad()  # as a plain loop does; and of the parameters that it does not hold
        held = {id(parameter) for group in self.optimizer.param_groups for parameter in group["params"]}
        for parameter in self.trained:
            parameter.grad = parameter.grad if id(parameter) in held else None
        scalar = self._accumulated(batch) if self._setup.side.parts > 1 else self._differentiated(batch, self._data)
        gradients, has_hooks = gradients_of(self.trained), bool(self.optimizer._optimizer_step_pre_hooks)
        if has_hooks:  # which may change them, also in place
            gradients = {key: each.clone() for key, each in gradients.items()}
        else:
            record(Step([scalar.value], scalar.target, gradients))
        with user_errors("the optimizer's step fails"):
            self.optimizer.step()
        if has_hooks:
            record(Step([scalar.value], scalar.target, gradients, gradients_of(self.trained)))

    def _differentiated(self, batch: Batch, data: PairData, parts: int = 1) -> losses.Scalar:
        """Run the forward and the backward pass of a batch, or of one of its parts, whose losses are averaged."""
        scalar = self._scalar(batch, data)
        if scalar.value.requires_grad:
            with user_errors(f"torch={self.pair.torch}: backward fails"):
                (scalar.value / parts if parts > 1 else scalar.value).backward()
        return scalar

    def _accumulated(self, batch: Batch) -> losses.Scalar:
        """Run this rank's parts of a batch one after another; return the mean of the losses of all ranks' parts."""
        parts, values = self._setup.parts(self._data), []
        for number, data in enumerate(parts):
            with self._setup.unsynchronised(number):
                scalar = self._differentiated(self.batch(batch.number, data), data, len(parts))
            values.append(scalar.value.detach())
        return losses.Scalar(self._setup.mean(torch.stack(values).mean()), self._target(batch))

    def loss(self, batch: Batch, number: int = 0) -> torch.Tensor:
        """Run a step up to its first backward pass, or a further one, and return what that would differentiate."""
        if not self.pair.train.torch_step:
            return self._scalar(batch, self._data).value

        def run(leave: Callable[[torch.Tensor], None]) -> None:
            seen = StepObserver(self.trained, lambda loss: leave(loss) if len(seen.losses) > number else None)
            with seen.watched(), setting(script_calls.is_undivided.get, script_calls.is_undivided.set, True):
                self._run(batch)

        return left_with(run, "the step has no backward pass")

    def _scalar(self, batch: Batch, data: PairData) -> losses.Scalar:
        """Return the loss of a plain step; the model gets copies of the inputs, since it may modify them in place."""
        copies = {name: each.clone() for name, each in batch.inputs.items()}
        with self._mixed:
            with self._observed(self.pair.shared(copies)):
                outputs = call(self._setup.called or self.model, self.pair, copies)
            self._on_return(outputs)
            return losses.training(self.pair, outputs, data, batch.number, self._halves.search)

    def _own_step(self, batch: Batch) -> Step:
        seen = StepObserver(self.trained, buffers=dict(self.model.named_buffers()))
        self._setup.batch = list(self._data.step(batch.number).values())
        with seen.watched(), self._setup.observed(self.model), self._observed(self.pair.shared(batch.inputs)):
            returned = self._run(batch)
        if (own := losses.number(seen.unscaled(returned))) is not None:
            means, returns_loss = [self._setup.mean(own)], True
        else:
            means, returns_loss = [self._setup.mean(loss) for loss in seen.losses], False
        own_step = returns_loss, seen.is_applied, seen.rates, seen.before
        return Step(means, self._target(batch), seen.gradients, {}, *own_step)

    def _run(self, batch: Batch) -> Any:
        """Run the user's own step, and return what it returns."""
        text = self.pair.train.torch_step
        parts = {self.pair.inputs[name].torch or name: each for name, each in batch.inputs.items()}
        named = structure.wholes(parts, torch.stack)
        named[TARGET] = self._target(batch, part=True)
        data = self._setup.parts(self._data)[0]
        named |= tensors(data.further_targets(batch.number), self.device)
        if (weight := data.sample_weight(batch.number)) is not None:
            named[SAMPLE_WEIGHT] = tensor(weight, self.device)
        step = load("train.torch_step", text, "model", "optimizer", "batch", search=self._halves.search)
        with user_errors(f"train.torch_step={text} fails"), self._mixed:
            return step(self._setup.called or self.model, self.optimizer, named)

    def _target(self, batch: Batch, part: bool = False) -> torch.Tensor:
        """Return a step's target, or this rank's part of it; one that is not given is drawn for the surveyed output."""
        seen = survey.read(Path(self._halves.survey)).rehearsal.trained
        shape, data, is_ids = seen.shape if seen else (), self._data, self.pair.train.loss == "cross_entropy"
        if part and self._setup.rank.of > 1:
            data = self._setup.parts(data)[0]
        return tensor(data.target(batch.number, data.part_of(shape), is_ids), self.device)
