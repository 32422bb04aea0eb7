"""What comes after a forward pass of a user's model, computed again: a loss, a gradient, buffers, an optimizer's steps.

The model is brought to the state before the step in question by training it from the beginning. A gradient is computed
by the backward pass of one module alone, with the arguments and the gradients of its outputs that it had, where that
gives what was recorded; else by that of the whole model. What the forward pass returns must stay the same.
"""

from typing import Any

import numpy as np
import torch
from torch import nn

from parity.core.arrays import Array, reproduced
from parity.core.program import find
from parity.diagnose.experiment.attempts import ContradictionError
from parity.diagnose.experiment.knobs import Knob, Owner
from parity.diagnose.experiment.pieces import Again, Evidence, Way, steps, updated_names
from parity.runtime.experiment import Question
from parity.trace.keys import INPUT
from torch_impl.experiment.call import copied
from torch_impl.experiment.training import Pass, Training
from torch_impl.record import calls, tree
from torch_impl.record.pair.outputs import flat
from torch_impl.record.weights import array


class Later(Training):
    """A built model, of which what comes after the forward pass of a step can be computed again."""

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
        compute = {
            "loss": lambda: self._loss(evidence),
            "buffer": lambda: self._buffer(name),
            "gradient": lambda: self._gradient(name),
        }[kind]
        alone = self._alone(question.module, name) if kind == "gradient" else None
        return [Way(each, each) for each in (alone, lambda: [(name, compute())]) if each]

    def owners(self) -> list[Owner]:
        """Return the modules that the user's loss function reads from its file, such as an nn.CrossEntropyLoss."""
        train = self._pair.train
        if train is None or not train.torch_loss:
            return []
        function: Any = find("train.torch_loss", train.torch_loss, self._halves.search)
        names = getattr(getattr(function, "__code__", None), "co_names", ())
        found = [function, *(getattr(function, "__globals__", {}).get(name) for name in names)]
        return [Owner("", tree.kind(each), each) for each in found if isinstance(each, nn.Module)]

    def settings(self) -> list[Knob]:
        """Return what else decides how the training is computed: torch's modules add no losses."""
        return []

    def _again(self) -> Pass:
        """Run the question's step again, in which the outputs must stay the same."""
        self._restore()
        done = self._pass(self._step)
        self._keep("outputs", done.outputs)
        return done

    def _keep(self, what: str, returned: list[torch.Tensor]) -> None:
        """Raise ContradictionError if these tensors are not what they were at first."""
        arrays = [np.array(array(tensor)) for tensor in returned]
        first = self._first.setdefault(what, arrays)
        if len(arrays) != len(first) or not all(map(reproduced, arrays, first)):
            raise ContradictionError(f"a change of the backward pass alone leaves the {what} as they are")

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

    def loss_alone(self) -> Array:
        """Return the loss of the step."""
        return array(self._again().loss)

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
            lambda call: given.append((copied(call.args), copied(call.kwargs))),
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
            outputs = _floats(module(*copied(given[0][0]), **copied(given[0][1])))
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


def _gradient(tensor: torch.Tensor, found: torch.Tensor | None) -> Array:
    return array(torch.zeros_like(tensor) if found is None else found)


def _floats(outputs: Any) -> list[torch.Tensor]:
    return [tensor for tensor in flat(outputs) if tensor.is_floating_point()]
