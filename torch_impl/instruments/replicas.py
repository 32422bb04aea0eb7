"""Notes the parameters and gradients of a step so that ranks can be compared with each other."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from parity.doctor.evidence import Step
from parity.doctor.evidence.replicas import Change, Comparable, Numbers
from torch_impl.instruments import devices, source, values
from torch_impl.instruments.dtensors import is_dtensor
from torch_impl.instruments.origins import tensors


class Replicas:
    """Notes what a step does to the parameters of the model; nothing if there is only one rank."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.there_are_others = devices.rank().of > 1

    def begin(self, step: Step) -> None:
        """Attribute what follows to this step."""
        self.comparable = step.comparable = Comparable() if self.there_are_others else None
        self._gradients: dict[int, tuple[str, torch.Tensor]] = {}  # by the address of their numbers
        self._updating: dict[str, Numbers] = {}

    def note_use(self) -> None:
        """Note the parameters as they are when a backward pass begins."""
        self._gradients = {}
        if self.comparable and not self.comparable.used:
            self.comparable.used = {name: values.numbers(parameter) for name, parameter in self._parameters()}

    def note_gradients(self) -> None:
        """Note where the gradients are, when a backward pass is over."""
        if self.comparable:
            graded = [(name, parameter.grad) for name, parameter in self._parameters()]
            self._gradients = {values.address(grad): (name, grad) for name, grad in graded if _is_dense(grad)}

    @contextmanager
    def written(self, function: str, args: tuple) -> Iterator[None]:
        """Note what the function that runs within the block writes into gradients."""
        is_write = function.startswith("__i") or (function.endswith("_") and not function.endswith("__"))
        targets = tensors(args[:1]) if is_write and self._gradients else []
        held = [self._gradients[address] for address in map(values.address, targets) if address in self._gradients]
        before = {name: values.numbers(gradient) for name, gradient in held}
        yield
        for name, gradient in held:
            self._note(name, "gradient", before[name], values.numbers(gradient))

    def note_updating(self) -> None:
        """Note the gradients that an update is about to use."""
        if self.comparable:
            graded = [(name, parameter.grad) for name, parameter in self._parameters()]
            self._updating = {name: values.numbers(grad) for name, grad in graded if _is_dense(grad)}
        self._gradients = {}  # what an optimizer does with them is a part of its update

    def note_updated(self) -> None:
        """Note the parameters after an update."""
        if self.comparable:
            for name, parameter in self._parameters():
                if name in self._updating:
                    self._note(name, "update", self._updating[name], values.numbers(parameter))

    def _note(self, name: str, what: Any, gradient: Numbers, result: Numbers) -> None:
        change = Change(parameter=name, what=what, source=source.line(), gradient=gradient, result=result)
        assert self.comparable
        self.comparable.changes.append(change)

    def _parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Yield the parameters that are to be trained and whole on this rank, which a DTensor need not be."""
        for name, parameter in self.model.named_parameters():
            if parameter.requires_grad and not is_lazy(parameter) and not is_dtensor(parameter):
                yield name, parameter


def _is_dense(gradient: torch.Tensor | None) -> bool:
    return gradient is not None and gradient.layout == torch.strided
