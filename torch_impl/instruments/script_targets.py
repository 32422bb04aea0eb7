"""What a step of a PyTorch script gives to its model and to its loss, and what stands in place of it."""

import itertools
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_map

from parity.config.pair import TARGET
from parity.pairs.script_records import OF_LOSS
from torch_impl.instruments.loss_tape import LossTape
from torch_impl.instruments.script_calls import tensors_of_call

Given = Mapping[str, torch.Tensor]


class StepData:
    """The data of one step.

    What a loss takes beside the model's outputs is its target: it gets that of the pair's batch, if that has something
    of each sample. Weights of classes and other constants stay, and what is made of the target, such as its one-hot
    rows, or of the model's outputs. `batch`: what stands in place of the script's own tensors, by name. `of_loss`: the
    names of what the loss takes, in the order in which it uses that. `constants`: by id(), what modules of the loss
    hold.
    """

    def __init__(self, script: str, batch: Given, of_loss: Sequence[str], constants: Collection[int]) -> None:
        self._script, self.batch, self._of_loss, self._constants = script, batch, of_loss, constants
        self.calls: list[tuple[Any, Any]] = []  # the arguments of the model's calls
        self.tape = LossTape(self._for_loss)
        self._inputs: Given = {}  # what the model is given, by the names of the arguments
        self._loss_inputs: list[torch.Tensor] = []
        self._of_data: set[int] = set()  # by id(): what these are made of, and the model's outputs

    @property
    def taken(self) -> dict[str, torch.Tensor]:
        """Return what the script gives to its model and its loss, by name."""
        names = (f"{OF_LOSS}{position}" for position in itertools.count())
        return {**self._inputs, **dict(zip(names, self._loss_inputs, strict=False))}

    def forget(self) -> None:
        """Forget the calls so far, which were an evaluation."""
        self._inputs, self._loss_inputs, self.calls, self._of_data = {}, [], [], set()

    def on_call(self, model: nn.Module, args: Any, kwargs: Any) -> Any:
        """Note a call of the model; return its arguments as it is to be given them."""
        self.tape.pause()
        self.calls.append((args, kwargs))
        taken = tensors_of_call(self._script, model, args, kwargs)
        known = set(map(id, self._inputs.values()))
        self._inputs = (
            taken
            if len(self.calls) == 1
            else {
                **self._inputs,
                **{
                    f"{TARGET}.{len(self.calls)}.{name}": each  # of a further call what is new, and made of data
                    for name, each in taken.items()
                    if id(each) not in known
                    and not each.requires_grad
                    and self.tape.sources(each).isdisjoint(self._of_data)
                },
            }
        )
        return self.given(args, kwargs)

    def on_return(self, outputs: Sequence[torch.Tensor]) -> None:
        """Note what the model has returned."""
        self.tape.begin(outputs, further=len(self.calls) > 1)
        self._of_data |= set(map(id, outputs))

    def given(self, args: Any, kwargs: Any) -> Any:
        """Return the arguments of a call of the model with the batch in the place of the script's own tensors."""
        given = {id(each): self.batch[name] for name, each in self._inputs.items() if name in self.batch}
        return tree_map(lambda each: given.get(id(each), each), (args, kwargs))

    def _for_loss(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return what stands in a loss in place of a tensor of the script's own."""
        samples = next((each.shape[0] for each in self._inputs.values() if each.dim()), 0)
        is_constant = id(tensor) in self._constants or not tensor.dim() or not tensor.numel()
        if is_constant or not samples or tensor.numel() % samples:
            return tensor
        inputs = {id(each): name for name, each in self._inputs.items()}
        names = inputs | dict(zip(map(id, self._loss_inputs), self._of_loss, strict=False))
        given = {own: self.batch[name] for own, name in names.items() if name in self.batch}
        if id(tensor) not in map(id, self._loss_inputs):
            sources = self.tape.sources(tensor)
            is_of_outputs = bool(sources) and sources <= self._of_data
            is_made = not sources or sources & (self._of_data | inputs.keys())
            if is_of_outputs or (self._loss_inputs and is_made):
                return self.tape.remade(tensor, given)
            source = tensor if sources & inputs.keys() else self.tape.source(tensor)
            is_table = source.numel() > tensor.numel() and source.is_floating_point()  # one column is the target
            if not source.dim() or source.numel() % samples or is_table:
                source = tensor
            self._of_data |= sources
            self._loss_inputs.append(source)
            made = self._for_loss(source)
            return made if source is tensor else self.tape.remade(tensor, {id(source): made})
        return given.get(id(tensor), tensor)


class KeptData(StepData):
    """The data of a step that is given what its script gives."""

    def given(self, args: Any, kwargs: Any) -> Any:
        """Return the arguments as they are."""
        return args, kwargs

    def _for_loss(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor
