"""The functions by which a script's step makes its loss of what its model returns, which can be called again."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

from parity.runtime import returned
from torch_impl.instruments import source
from torch_impl.instruments.chain import Beside
from torch_impl.instruments.noise import FUNCTIONS, GAMMAS

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
