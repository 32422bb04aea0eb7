"""What comes after a forward pass of a user's model, computed again: a loss, a gradient, buffers, an optimizer's steps.

The model is brought to the state before the step in question by training it from the beginning. A gradient is computed
by the backward pass of one module alone, with the arguments and the gradients of its outputs that it had, where that
gives what was recorded; else by that of the whole model. What the forward pass returns must stay the same.
"""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn
from torch.utils import _pytree as pytree

from parity.core.arrays import Array
from parity.core.names import INPUT
from parity.data.pairs import PairData
from parity.diagnose.experiment.knobs import Knob, Owner
from parity.diagnose.experiment.pieces import Evidence, Steps, steps, updated, updated_names
from parity.doctor.program import load
from parity.pairs.vary.record import reproduced
from parity.runtime.job import ExperimentJob
from parity.trace.experiment import Question
from torch_impl.record import calls, kinds, tree
from torch_impl.record.masks import Masks
from torch_impl.record.pair import losses, values
from torch_impl.record.pair.build import call, tensors
from torch_impl.record.pair.optimizers import made
from torch_impl.record.pair.outputs import flat, named
from torch_impl.record.pair.vary import Instance
from torch_impl.record.weights import array

Again = Callable[[], list[tuple[str, Array]]]  # computes a tensor again; with its name


class Way(NamedTuple):
    """A way to compute a tensor again: `recorded` as it was recorded, `asked` as the other side's is to be met."""

    recorded: Again
    asked: Again


class _Pass(NamedTuple):
    inputs: dict[str, torch.Tensor]
    outputs: list[torch.Tensor]
    loss: torch.Tensor


class Later:
    """A built model, of which what comes after the forward pass of a step can be computed again.

    `stack` is closed when the model is no longer needed.
    """

    def __init__(self, job: ExperimentJob, built: Instance, stack: ExitStack) -> None:
        self._case, self._pair, self._search = job.case, job.case.model, job.pair.search
        self._model, self._device, self._stack = built.model, built.device, stack
        self._data = PairData(job.case, job.pair.search)
        self._masks = Masks(job.case.seed, 0, ordered=True)
        self._step = 0
        self._state: dict[str, torch.Tensor] = {}
        self._first: dict[str, list[Array]] = {}

    @torch.enable_grad()
    def ways(self, question: Question, evidence: Evidence) -> list[Way]:
        """Return the ways to compute a question's tensor again, the fastest first; the last one is always right."""
        kind, name = question.tensor.kind, question.tensor.key.partition("/")[2]
        self._begin(question.tensor.step)
        if kind == "update":
            few = updated_names(evidence)
            own, other = steps(question)
            return [
                Way(self._updates(name, own, evidence, names), self._updates(name, other, evidence, names))
                for names in (few, list(own.gradients[0]))
            ]
        if kind == "loss":
            whole: Again = lambda: [(name, self._loss(evidence))]  # noqa: E731
        elif kind == "buffer":
            whole = lambda: [(name, self._buffer(name))]  # noqa: E731
        else:
            whole = lambda: [(name, self._gradient(name))]  # noqa: E731
        alone = self._alone(question.module, name) if kind == "gradient" else None
        return [Way(each, each) for each in (alone, whole) if each]

    def owners(self) -> list[Owner]:
        """Return the modules that the user's loss function reads from its file, such as an nn.CrossEntropyLoss."""
        train = self._pair.train
        if train is None or not train.torch_loss:
            return []
        function: Any = load("train.torch_loss", train.torch_loss, "outputs", "target", search=self._search)
        names = getattr(getattr(function, "__code__", None), "co_names", ())
        found = [function, *(getattr(function, "__globals__", {}).get(name) for name in names)]
        return [Owner("", kinds.kind(each), each) for each in found if isinstance(each, nn.Module)]

    def settings(self) -> list[Knob]:
        """Return what else decides how the training is computed: torch's modules add no losses."""
        return []

    def _begin(self, step: int) -> None:
        """Bring the model into the state before a step."""
        self._step, train = step, self._pair.train
        self._model.train(train is not None)
        if train is not None:
            self._stack.enter_context(self._masks.drawn(self._model))
            optimizer = made(self._case, self._trained(), self._search)
            for number in range(step):
                self._pass(number).loss.backward()
                optimizer.step()
                self._masks.on_step()
                self._model.zero_grad()
        self._state = {name: tensor.detach().clone() for name, tensor in self._tensors().items()}

    def _restore(self) -> None:
        """Bring the model into the state before the question's step again."""
        with torch.no_grad():
            for name, tensor in self._tensors().items():
                if name in self._state and tensor.shape == self._state[name].shape:
                    tensor.copy_(self._state[name])
        self._masks.restart()

    def _tensors(self) -> Mapping[str, torch.Tensor]:
        return {**dict(self._model.named_parameters()), **dict(self._model.named_buffers())}

    def _trained(self) -> list[torch.Tensor]:
        return [part for parts in values.Weights(self._model).trained.values() for part in parts]

    def _pass(self, step: int) -> _Pass:
        """Run the forward pass of a step, and compute its loss."""
        inputs = tensors(self._data.step(step), self._device)
        for tensor in inputs.values():
            tensor.requires_grad_(tensor.is_floating_point())
        outputs = call(self._model, self._pair, {name: tensor.clone() for name, tensor in inputs.items()})
        canonical = [tensor for _, tensor in named(self._pair, outputs)]
        if self._pair.train is None:
            return _Pass(inputs, canonical, losses.probe(canonical, self._data).value)
        scalar = losses.training(self._pair, outputs, canonical, self._data, step, self._search)
        return _Pass(inputs, canonical, scalar.value)

    def _again(self) -> _Pass:
        """Run the question's step again, in which the outputs must stay the same."""
        self._restore()
        done = self._pass(self._step)
        self._keep("outputs", done.outputs)
        return done

    def _keep(self, what: str, returned: list[torch.Tensor]) -> None:
        """Raise LookupError if these tensors are not what they were at first."""
        arrays = [np.array(array(tensor)) for tensor in returned]
        first = self._first.setdefault(what, arrays)
        if len(arrays) != len(first) or not all(map(reproduced, arrays, first)):
            raise LookupError(f"a change of the backward pass alone leaves the {what} as they are")

    @torch.enable_grad()
    def _loss(self, evidence: Evidence) -> Array:
        """Return the loss of the step, with the gradients that are evidence of it."""
        assert evidence.pieces
        loss = self._again().loss
        names = [name for name in evidence.pieces.noise if name in dict(self._model.named_parameters())]
        own = [self._model.get_parameter(name) for name in names]
        found = torch.autograd.grad(loss, own, allow_unused=True) if own and loss.requires_grad else [None] * len(own)
        gradients = dict(zip(names, map(_gradient, own, found), strict=True))
        return evidence.pieces.joined({"loss": array(loss), **gradients})

    @torch.enable_grad()
    def _gradient(self, name: str) -> Array:
        """Return the gradient of a parameter or an input."""
        done = self._again()
        self._keep("loss", [done.loss])
        of_input = done.inputs.get(name.removeprefix(f"{INPUT}."))
        tensor = self._model.get_parameter(name) if of_input is None else of_input
        (found,) = torch.autograd.grad(done.loss, [tensor], allow_unused=True) if done.loss.requires_grad else (None,)
        return _gradient(tensor, found)

    def _alone(self, path: str, name: str) -> Again | None:
        """Return how a gradient is computed by a module alone; None if it is not called once, or has no outputs."""
        module, given, returned = tree.named(self._model).get(path), [], []
        if not path or module is None or name.startswith(INPUT):
            return None
        with calls.observed(
            {path: module},
            lambda call: given.append((_copied(call.args), _copied(call.kwargs))),
            lambda call, outputs: returned.append(_floats(outputs)),
        ):
            loss = self._again().loss
        if len(returned) != 1 or not (outputs := [each for each in returned[0] if each.requires_grad]):
            return None
        found = dict(zip(map(id, outputs), torch.autograd.grad(loss, outputs, allow_unused=True), strict=True))
        upstream = [found.get(id(each)) for each in returned[0]]

        @torch.enable_grad()
        def again() -> list[tuple[str, Array]]:
            self._restore()
            outputs = _floats(module(*_copied(given[0][0]), **_copied(given[0][1])))
            self._keep("module's outputs", outputs)
            known = [
                pair for pair in zip(outputs, upstream, strict=True) if pair[0].requires_grad and pair[1] is not None
            ]
            parameter, result = self._model.get_parameter(name), None
            if known:
                reached, given_to = zip(*known, strict=True)
                (result,) = torch.autograd.grad(reached, [parameter], given_to, allow_unused=True)
            return [(name, _gradient(parameter, result))]

        return again

    def _buffer(self, name: str) -> Array:
        """Return a buffer after the forward pass of the step."""
        self._again()
        return np.array(array(self._model.get_buffer(name)))

    def _updates(self, name: str, given: Steps, evidence: Evidence, names: list[str]) -> Again:
        """Return how the optimizer moves these parameters, by their gradients."""
        assert evidence.pieces
        pieces = evidence.pieces

        def again() -> list[tuple[str, Array]]:
            self._restore()
            parameters, moved = {each: self._model.get_parameter(each) for each in names}, {}
            optimizer = made(self._case, list(parameters.values()), self._search)
            for step, gradients in enumerate(given.gradients):
                for each, parameter in parameters.items():
                    parameter.grad = torch.from_numpy(np.array(gradients[each])).to(parameter)
                optimizer.step()
                for each, parameter in parameters.items() if step in given.recorded else ():
                    moved[updated(each, step)] = array(parameter - self._state[each])
            self._model.zero_grad()
            return [(name, pieces.joined(moved))]

        return again


def _gradient(tensor: torch.Tensor, found: torch.Tensor | None) -> Array:
    return array(torch.zeros_like(tensor) if found is None else found)


def _floats(outputs: Any) -> list[torch.Tensor]:
    return [tensor for tensor in flat(outputs) if tensor.is_floating_point()]


def _copied(value: Any) -> Any:
    """Return arguments with copies of their tensors, without what they were computed from."""

    def copied(leaf: Any) -> Any:
        return leaf.detach().clone().requires_grad_(leaf.requires_grad) if isinstance(leaf, torch.Tensor) else leaf

    return pytree.tree_map(copied, value)
