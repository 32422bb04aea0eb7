"""What comes after a forward pass of a user's model, computed again: a loss, a gradient, or a buffer."""

from typing import Any

import numpy as np
import torch
from torch import nn

from parity.core.arrays import Array
from parity.core.program import find
from parity.diagnose.experiment.knobs import Knob, Owner
from parity.diagnose.experiment.pieces import Again, Evidence
from parity.diagnose.experiment.training import read_by
from parity.trace.keys import INPUT
from torch_impl.experiment.call import copied
from torch_impl.experiment.training import Training
from torch_impl.record import calls, tree
from torch_impl.record.pair.outputs import flat
from torch_impl.record.weights import array


class Later(Training):
    """A built model, of which what comes after the forward pass of a step can be computed again."""

    def owners(self) -> list[Owner]:
        """Return the modules that the user's loss function reads from its file, such as an nn.CrossEntropyLoss."""
        train = self._pair.train
        if train is None or not train.torch_loss:
            return []
        read = read_by(find("train.torch_loss", train.torch_loss, self._halves.search))
        return [Owner("", tree.kind(each), each) for each in read if isinstance(each, nn.Module)]

    def settings(self) -> list[Knob]:
        """Return what else decides how the training is computed: torch's modules add no losses."""
        return []

    @torch.enable_grad()
    def _loss(self, evidence: Evidence) -> Array:
        loss = self._again().loss
        names = [name for name in evidence.pieces.noise if name in dict(self._model.named_parameters())]
        own = [self._model.get_parameter(name) for name in names]
        found = torch.autograd.grad(loss, own, allow_unused=True) if own and loss.requires_grad else [None] * len(own)
        gradients = dict(zip(names, map(_gradient, own, found), strict=True))
        return evidence.pieces.joined({"loss": array(loss), **gradients})

    @torch.enable_grad()
    def _gradient(self, name: str) -> Array:
        done = self._again()
        self._keep("loss", [done.loss])
        of_input = done.inputs.get(name.removeprefix(f"{INPUT}."))
        tensor = self._model.get_parameter(name) if of_input is None else of_input
        (found,) = torch.autograd.grad(done.loss, [tensor], allow_unused=True) if done.loss.requires_grad else (None,)
        return _gradient(tensor, found)

    @torch.enable_grad()
    def _alone(self, path: str, name: str) -> Again | None:
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
        self._again()
        return np.array(array(self._model.get_buffer(name)))


def _gradient(tensor: torch.Tensor, found: torch.Tensor | None) -> Array:
    return array(torch.zeros_like(tensor) if found is None else found)


def _floats(outputs: Any) -> list[torch.Tensor]:
    return [tensor for tensor in flat(outputs) if tensor.is_floating_point()]
