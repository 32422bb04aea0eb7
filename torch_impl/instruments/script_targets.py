"""What a step of a PyTorch script gives to its model and to its loss, and what stands in place of it."""

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_map

from parity.config.pair import SAMPLE_WEIGHT, TARGET
from parity.core.errors import UsageError
from parity.doctor import rewrite
from parity.pairs.script_records import OF_LOSS, PART, Trained
from torch_impl.instruments.chain import Beside
from torch_impl.instruments.loss_tape import LossTape
from torch_impl.instruments.script_calls import StandIn, tensors_of_call

Given = Mapping[str, torch.Tensor]


class StepData:
    """The data of one step.

    What a loss takes beside the model's outputs is its target: it gets that of the pair's batch, if that has something
    of each sample. Of ids of which it takes a part that is what they are a part of, unless it is `known` to take parts.
    Weights of classes and other constants stay, and what is made of the target, such as its one-hot rows, or of the
    model's outputs; all stays where the script keeps its data. `batch`: what stands in place of the script's own
    tensors, by name. `known`: what the script is known to train on. `constants`: by id(), what modules of the loss
    hold. `beside`: by id(), what frozen modules have returned since the last backward pass, and what is made of that
    alone, which stays where these are parts of the model.
    """

    def __init__(
        self, script: str, batch: Given, known: Trained | None, constants: Collection[int], beside: Beside
    ) -> None:
        self._script, self.batch, self._constants = script, batch, constants
        self._of_loss = known.of_loss if known else [TARGET, SAMPLE_WEIGHT]  # the names of what the loss takes
        self._takes_parts, self._parts = bool(known and known.takes_parts), dict[int, torch.Tensor]()  # by its number
        self._keeps_data = bool(known and (known.keeps_data or known.fetched))
        self.calls: list[tuple[Any, Any]] = []  # the arguments of the model's calls
        self._beside, self.tape = beside, LossTape(self._for_loss, beside)
        self._inputs: Given = {}  # what the model is given, by the names of the arguments
        self._loss_inputs: list[torch.Tensor] = []
        self._of_data: set[int] = set()  # by id(): what these are made of, and the model's outputs
        self._counts: set[int] = set()  # of the samples of what it returns, as of graphs that it is given node by node

    @property
    def taken(self) -> dict[str, torch.Tensor]:
        """Return what the script gives to its model and its loss, by name."""
        names = (f"{OF_LOSS}{position}" for position in itertools.count())
        parts = {f"{PART}{OF_LOSS}{number}": each for number, each in self._parts.items()}
        return {**self._inputs, **dict(zip(names, self._loss_inputs, strict=False)), **parts}

    @property
    def compared(self) -> list[int | None]:
        """Return the number of the model's output that is compared with each tensor that the loss takes beside it."""
        return list(map(self.tape.beside, self._loss_inputs))

    @property
    def of_beside(self) -> list[str]:
        """Return the names of what the loss takes that is made of what frozen modules have returned."""
        return [f"{OF_LOSS}{place}" for place, each in enumerate(self._loss_inputs) if id(each) in self._beside.made]

    def labels(self, frame: Any) -> dict[str, list[str]]:
        """Return what the code that runs in a frame calls what the script gives to its model and its loss, by name."""
        taken = {name: each for name, each in self.taken.items() if not name.startswith(PART)}
        return {name: list(filter(None, [name, rewrite.name(frame, each)])) for name, each in taken.items()}

    def forget(self) -> None:
        """Forget the calls so far, which were an evaluation."""
        self._inputs, self._loss_inputs, self.calls, self._of_data, self._counts = {}, [], [], set(), set()

    def on_call(self, model: nn.Module, args: Any, kwargs: Any) -> Any:
        """Note a call of the model; return its arguments as it is to be given them."""
        self.tape.pause()
        self.calls.append((args, kwargs))
        taken = tensors_of_call(self._script, model, args, kwargs)
        number, known = len(self.calls), set(map(id, self._inputs.values()))
        further = {
            f"{TARGET}.{number}.{name}": each  # of a further call what is new, and made of data
            for name, each in taken.items()
            if id(each) not in known and not each.requires_grad and self.tape.sources(each).isdisjoint(self._of_data)
        }
        self._inputs = taken if number == 1 else {**self._inputs, **further}
        return self.given(args, kwargs)

    def note(self, further: Given) -> None:
        """Note what the script gives to further parts of its model, by the names in the whole."""
        self._inputs = {**self._inputs, **further}

    def seen(self) -> tuple[int, int, set[int]]:
        """Return how much has been seen of the loss."""
        return len(self.tape), len(self._loss_inputs), set(self._of_data)

    def forget_since(self, seen: tuple[int, int, set[int]]) -> None:
        """Forget what has been seen since, which was within a further part of the model."""
        length, taken, self._of_data = seen
        self.tape.cut(length)
        del self._loss_inputs[taken:]
        self._parts = {number: each for number, each in self._parts.items() if number < taken}

    def further(self, names: Iterable[str]) -> Given:
        """Return what further parts of the model are given, by name. Raises UsageError where that is not known yet."""
        try:
            return {name: self.batch[name] for name in names}
        except KeyError as error:
            raise UsageError(
                f"{self._script}: calls its modules one by one, and gives {error.args[0]} to a later one, which "
                "is known only where both scripts train on the same batches; call them in one nn.Module"
            ) from None

    def on_return(self, outputs: Sequence[torch.Tensor]) -> None:
        """Note what the model has returned."""
        self.tape.begin(outputs, further=len(self.calls) > 1)
        self._of_data |= set(map(id, outputs))
        self._counts |= {len(each) for each in outputs if each.dim()}

    def _is_of_samples(self, tensor: torch.Tensor) -> bool:
        given = next((each.shape[0] for each in self._inputs.values() if each.dim()), 0)
        return any(count and tensor.numel() % count == 0 for count in (given, *self._counts))

    def given(self, args: Any, kwargs: Any) -> Any:
        """Return the arguments of a call of the model with the batch in the place of the script's own tensors."""
        given = {
            id(each): StandIn.apply(each, self.batch[name]) if each.requires_grad else self.batch[name]
            for name, each in self._inputs.items()
            if name in self.batch and not self._keeps_data
        }
        return tree_map(lambda each: given.get(id(each), each), (args, kwargs))

    def _for_loss(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return what stands in a loss in place of a tensor of the script's own."""
        is_constant = id(tensor) in self._constants or not tensor.dim() or not tensor.numel()
        is_constant |= self._keeps_data or (bool(self._beside.parts) and id(tensor) in self._beside.made)
        if is_constant or not self._is_of_samples(tensor):
            return tensor
        inputs = {id(each): name for name, each in self._inputs.items()}
        names = inputs | dict(zip(map(id, self._loss_inputs), self._of_loss, strict=False))
        given = {own: self.batch[name] for own, name in names.items() if name in self.batch}
        if id(tensor) not in map(id, self._loss_inputs):
            sources = self.tape.sources(tensor)
            is_of_outputs = bool(sources) and sources <= self._of_data
            is_mixed = bool(sources & (self._of_data | inputs.keys()))
            if is_of_outputs or (self._loss_inputs and (is_mixed or not sources)):
                return self.tape.remade(tensor, given)
            if sources & self._of_data:  # of outputs and of what no function has taken alone beside these
                rest = (each for each in self.tape.leaves(tensor) if id(each) not in self._of_data)
                return self.tape.remade(tensor, given | {id(each): self._for_loss(each) for each in rest})
            source = tensor if sources & inputs.keys() else self.tape.source(tensor)
            is_part = source.numel() > tensor.numel()  # such as one column of a table, which is the target
            if is_part and not source.is_floating_point():
                self._parts[len(self._loss_inputs)] = tensor
                is_part = self._takes_parts
            if not source.dim() or not self._is_of_samples(source) or is_part:
                source = tensor
            self._of_data |= sources
            self._loss_inputs.append(source)
            made = self._for_loss(source)
            return made if source is tensor else self.tape.remade(tensor, {id(source): made})
        return given.get(id(tensor), tensor)
