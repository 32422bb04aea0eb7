"""What a step of a PyTorch script gives to its model and to its loss, and what stands in place of it.

What the script computes of its model's outputs, up to the backward pass, is seen, and can be run again.
"""

import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

from parity.config.pair import SAMPLE_WEIGHT, TARGET
from parity.core.errors import UsageError
from parity.doctor import rewrite
from parity.pairs.script_records import OF_LOSS, PART, Trained
from parity.runtime import returned
from torch_impl.instruments import source
from torch_impl.instruments.chain import Beside
from torch_impl.instruments.noise import FUNCTIONS, GAMMAS
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


Tensors = Sequence[torch.Tensor]


def _returned(value: Any) -> list[Any]:
    """Return the leaves of what a function returns, with what objects among them hold, such as distributions."""
    leaves = tree_leaves(value)
    return [*leaves, *(part.value for each in leaves for part in returned.leaves(each, torch.is_tensor))]


class _Applied(NamedTuple):
    function: Callable[..., Any]
    args: Any
    kwargs: Any
    result: Any
    line: str
    is_module: bool = False


class LossTape(TorchFunctionMode):
    """The functions that are called between `begin` and `end`.

    `replaced` is called with each tensor without a gradient that one of them takes beside tensors with one, and returns
    what it is given in place of it. What is made of tensors `beside` the model alone is added to these.
    """

    def __init__(self, replaced: Callable[[torch.Tensor], torch.Tensor], beside: Beside) -> None:
        super().__init__()
        self._replaced, self._beside = replaced, beside
        self._applied: list[_Applied] = []
        self._sources: dict[int, frozenset[int]] = {}  # by id(): what the functions' results are made of
        # By id(): what stands in place of the script's own data, and of what is made anew for it the script's own.
        self._given: dict[int, torch.Tensor] = {}
        self._own: dict[int, int] = {}
        self.outputs: Tensors = []
        self._held: dict[int, tuple[nn.Module, str]] = {}  # where the model's modules hold tensors, by id() of these
        self.loss: Any = None  # what is differentiated
        self._is_open = False

    def begin(self, outputs: Tensors, further: bool = False) -> None:
        """Begin with what the model has returned; with `further`, it has returned others before."""
        self.outputs, self._is_open = [*(self.outputs if further else ()), *outputs], True

    def go_on(self) -> None:
        """See what is called from now on."""
        self._is_open = True

    def pause(self) -> None:
        """Do not see what the model does, until it has returned something."""
        self._is_open = False

    def __len__(self) -> int:
        return len(self._applied)

    def cut(self, length: int) -> None:
        """Forget all functions but so many."""
        del self._applied[length:]

    def numbers(self) -> list[int | float]:
        """Return the numbers that the functions were given."""
        leaves = (tree_leaves((each.args, each.kwargs)) for each in self._applied if not each.is_module)
        return list(dict.fromkeys(each for of in leaves for each in of if type(each) in (int, float)))

    def call(self, module: Callable[..., Any], args: Any, kwargs: Any) -> None:
        """Do not see what a module does, which is called again with the functions, until it has `returned`."""
        self._applied.append(_Applied(module, args, kwargs, None, source.nearest(), is_module=True))
        self._is_open = False

    def returned(self, outputs: Any) -> None:
        """Go on behind the call of a module."""
        self._applied[-1] = self._applied[-1]._replace(result=outputs)
        self._is_open = True

    def end(self, loss: Any, modules: Iterable[nn.Module]) -> None:
        """End with what is differentiated; `modules`: the model's, which may hold what they made for the loss."""
        self.loss, self._is_open = loss, False
        held = ((module, name, each) for module in modules for name, each in vars(module).items())
        self._held = {id(each): (module, name) for module, name, each in held if isinstance(each, torch.Tensor)}

    def sources(self, tensor: torch.Tensor) -> frozenset[int]:
        """Return by id() what the functions have made a tensor of: the tensor itself, if none has made it."""
        return self._sources.get(id(tensor), frozenset([id(tensor)]))

    def leaves(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """Return the tensors of which the functions have made this one."""
        taken = (each for applied in self._applied for each in tree_leaves((applied.args, applied.kwargs)))
        of = self.sources(tensor)
        return list({id(each): each for each in taken if isinstance(each, torch.Tensor) and id(each) in of}.values())

    def source(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the one tensor of which the functions have made this one, or this one itself."""
        leaves = self.leaves(tensor)
        return leaves[0] if len(self.sources(tensor)) == len(leaves) == 1 else tensor

    def beside(self, tensor: torch.Tensor) -> int | None:
        """Return the number of the only output that the first function takes which takes both it and a tensor."""
        for applied in self._applied:
            leaves = [each for each in tree_leaves((applied.args, applied.kwargs)) if isinstance(each, torch.Tensor)]
            sources = frozenset[int]().union(*map(self.sources, leaves))
            numbers = [number for number, output in enumerate(self.outputs) if id(output) in sources]
            if numbers and id(tensor) in sources:
                return numbers[0] if len(numbers) == 1 else None
        return None

    def remade(self, tensor: torch.Tensor, given: Mapping[int, torch.Tensor]) -> torch.Tensor:
        """Return a tensor without a gradient as the functions make it of what is given, by id(), for their own."""
        made: torch.Tensor = self._again(given, of_data=True).get(id(tensor), tensor)
        if made is not tensor:
            self._given |= given
            self._own[id(made)] = id(tensor)
        return made

    def again(self, outputs: Tensors) -> torch.Tensor:
        """Return the loss of other outputs. Raises LookupError if it is computed in ways that were not seen."""
        returned = {own: getattr(*place) for own, place in self._held.items()}
        returned |= {id(before): output for before, output in zip(self.outputs, outputs, strict=True)}
        now = self._again(self._given | returned)
        if id(self.loss) not in now:
            raise LookupError("the loss is no tensor of which torch tells how it was computed")
        return now[id(self.loss)]

    def _again(self, given: Mapping[int, torch.Tensor], of_data: bool = False) -> dict[int, Any]:
        """Call the functions with what is given, by id(), for their own, and return that and what they return.

        Random numbers stay, and what is made of no tensor. With `of_data` only those are called that take what is
        given, and whose results have no gradient.
        """
        now: dict[int, Any] = dict(given)

        def current(value: Any) -> Any:
            return now.get(self._own.get(id(value), id(value)), value)

        for function, args, kwargs, result, line, is_module in self._applied:
            leaves, taken = _returned(result), tree_leaves((args, kwargs))
            if of_data:
                has_gradient = any(isinstance(each, torch.Tensor) and each.requires_grad for each in leaves)
                is_called = any(id(each) in now for each in taken) and not has_gradient
            else:
                is_drawn = getattr(function, "__name__", "") in (*FUNCTIONS, *GAMMAS)
                is_called = is_module or (not is_drawn and any(isinstance(each, torch.Tensor) for each in taken))
            if is_called:
                args, kwargs = tree_map(current, (args, kwargs))
                with source.standing_for(line):
                    again = function(*args, **kwargs)
                now |= {id(each): new for each, new in zip(leaves, _returned(again), strict=result is not None)}
        return now

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        if not self._is_open:
            return func(*args, **kwargs)
        tensors = [each for each in tree_leaves((args, kwargs)) if isinstance(each, torch.Tensor)]
        if any(each.requires_grad for each in tensors):
            replaced = {id(each): self._replaced(each) for each in tensors if not each.requires_grad}
            args, kwargs = tree_map(lambda each: replaced.get(id(each), each), (args, kwargs))
        result = func(*args, **kwargs)
        if self._is_open:
            self._applied.append(_Applied(func, args, kwargs, result, source.nearest()))
            sources = frozenset[int]().union(*map(self.sources, tensors))
            self._sources |= dict.fromkeys(map(id, tree_leaves(result)), sources)
            if tensors and self._beside.made.keys() >= set(map(id, tensors)):
                self._beside.add(result)
        return result
