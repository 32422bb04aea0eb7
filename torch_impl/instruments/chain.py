"""Modules that a step calls one by one, each with what those before it return: an encoder, a decoder, a head.

They are one model, which calls all of them where the script calls the first. What they are given besides, as a decoder
the sequence that it is taught, is an input of the whole. Further modules that are trained, such as weights of the terms
of a loss, are its parts, and are called by the script alone. Frozen modules stand beside it. Those that are given what
the step makes, such as a GAN's, are one model as well, which calls each with its own inputs.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves, tree_map

from parity.config.pair import TARGET
from parity.core.errors import UsageError
from parity.pairs.script_records import OPTIONS, Called, Fetched, Frozen
from torch_impl.instruments.script_calls import Copy


def tensors(value: Any) -> list[torch.Tensor]:
    """Return the tensors in a value."""
    return list(filter(torch.is_tensor, tree_leaves(value)))


class Together(nn.Module):
    """Several modules as one, which calls each of them with its own inputs."""

    def __init__(self, modules: Mapping[str, nn.Module]) -> None:
        super().__init__()
        for name, module in modules.items():
            self.add_module(name, module)

    def forward(self, **inputs: Mapping[str, torch.Tensor]) -> list[torch.Tensor]:
        """Return what all modules return; `inputs`: the arguments of each, by the names of both."""
        return tree_leaves([module(**inputs[name]) for name, module in self.named_children()])


class Chain(nn.Module):
    """Several modules as one; `first` is called first, and its arguments are those of the whole, with `further` ones.

    The latter are what the others are given beside what has been returned.
    """

    def __init__(self, parts: Mapping[str, nn.Module], known: Fetched) -> None:
        super().__init__()
        for name, part in parts.items():
            self.add_module(name, part)
        numbered = list(parts.values())
        first, self._calls = numbered[0], {numbered[each.layer]: each for each in known.calls}
        self._takes = dict(zip(self._calls, known.takes, strict=True))
        self.further = [name for names in known.takes for name in names]
        self._returned: dict[nn.Module, Any] = {}

        def forward(*args: Any, **kwargs: Any) -> Any:
            further = [kwargs.pop(name) for name in self.further]
            self._returned = {first: first(*args, **kwargs)}
            for part in self._calls:
                args, kwargs = self._given(part, further)
                self._returned[part] = part(*args, **kwargs)
            return list(self._returned.values())[-1]

        signature = inspect.signature(first.forward)
        own = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in self.further]
        parameters = [*signature.parameters.values(), *own]
        forward.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        self.forward = forward

    @property
    def first(self) -> nn.Module:
        """Return the module that is called first."""
        return next(self.children())

    def taken(self, part: nn.Module, args: Any, kwargs: Any) -> Any:
        """Return what a part has returned within the whole. Raises UsageError if it is given something else here."""
        if part is self.first:
            return self._returned[part]
        given, expected = (
            list(map(id, tensors(each))) for each in ((args, kwargs), self._given(part, [None] * len(self.further)))
        )
        if not set(expected) <= set(given) or len(given) > len(expected) + len(self._takes[part]):
            raise UsageError(
                f"{type(part).__name__} is not given what the modules before it have returned last, as in the first "
                "step; expected them to be called in turn, or one nn.Module that calls them"
            )
        return self._returned[part]

    def is_linked(self, part: nn.Module) -> bool:
        """Return whether a part is called where the whole is."""
        return part in self._calls

    def besides(self, part: nn.Module, args: Any, kwargs: Any) -> dict[str, torch.Tensor]:
        """Return what the script gives to a part beside what has been returned, by the names of the whole."""
        returned = set(map(id, tree_leaves(list(self._returned.values()))))
        given = (each for each in tensors((args, kwargs)) if id(each) not in returned)
        return dict(zip(self._takes[part], given, strict=False))

    def _given(self, part: nn.Module, further: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
        return self._calls[part].given(further, tree_leaves(list(self._returned.values())))


def parts_of(model: nn.Module) -> list[nn.Module]:
    """Return the models that are trained as one, or that one itself."""
    return list(model.children()) if isinstance(model, (Together, Chain)) else [model]


class Links:
    """How a script calls the modules that it trains, as seen in a first step."""

    def __init__(self) -> None:
        self._calls: dict[nn.Module, Called | None] = {}
        # What each is given beside what has been returned: the names in the whole, by those of its arguments.
        self._takes: dict[nn.Module, dict[str, str]] = {}
        self._names: set[str] = {TARGET}  # what the whole is given
        self._returned: list[Any] = []
        self.are_one = True  # whether all modules are links, or are called by the loss

    def note(self, module: nn.Module, args: Any, kwargs: Any, outputs: Any, taken: Mapping[str, torch.Tensor]) -> bool:
        """Note a call of a module, with the tensors that it is given, by name.

        Returns whether it is a link, rather than one that the loss calls, as one is that is given a number for each
        sample: a margin the classes.
        """
        if module not in self._calls:
            numbers = {id(each): number for number, each in enumerate(self._returned)}
            own = {name: each for name, each in taken.items() if id(each) not in numbers}
            is_linked = len(own) < len(taken)
            is_link = is_linked and all(map(_is_further, own.values()))
            is_link &= all(isinstance(each, (torch.Tensor, *OPTIONS)) for each in tree_leaves((args, kwargs)))
            are_numbers = all(not each.ndim for each in tensors(outputs))
            is_link &= not (are_numbers and own)
            before = sum(len(self._takes[each]) for each, link in self._calls.items() if link)
            places = {id(each): before + number for number, each in enumerate(own.values())}

            def noted(value: Any) -> Any:
                if not isinstance(value, torch.Tensor):
                    return value
                return {"output": numbers[id(value)]} if id(value) in numbers else {"tensor": places[id(value)]}

            placed = tree_map(noted, (list(args), kwargs)) if is_link else ([], {})
            call = Called(layer=len(self._calls), args=placed[0], kwargs=placed[1])
            self.are_one &= not self._calls or is_link or are_numbers or (is_linked and bool(own))
            self._takes[module] = {name: self._name(name) for name in own} if is_link or not self._calls else {}
            self._returned += tree_leaves(outputs) if is_link or not self._calls else []
            self._calls[module] = call if is_link else None
        return self._calls[module] is not None

    def _name(self, name: str) -> str:
        """Return a name of the whole's own for what a module calls so."""
        while name in self._names:
            name += "_"
        self._names.add(name)
        return name

    def besides(self, module: nn.Module, taken: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return what a link is given beside what has been returned, by the names of the whole."""
        return {name: taken[own] for own, name in self._takes[module].items() if own in taken}

    def end(self) -> None:
        """Forget what has been returned, which holds the graphs of a step."""
        self._returned = []

    @property
    def parameters(self) -> list[nn.Parameter]:
        """Return the parameters of all modules."""
        return [parameter for module in self._calls for parameter in module.parameters()]

    @property
    def classes(self) -> list[str]:
        """Return the names of the modules' classes."""
        return [type(each).__name__ for each in self._calls]

    def described(self, name: Callable[[nn.Module], str], number: Callable[[nn.Module], int]) -> Fetched | None:
        """Return the modules by name, with how links are called; None for one module, and for several models."""
        links = {module: each for module, each in self._calls.items() if each}
        modules = {name(each): number(each) for each in self._calls}
        if len(modules) < 2 or not self.are_one:
            return None
        takes = [list(self._takes[module].values()) for module in links]
        return Fetched(modules=modules, calls=list(links.values()), takes=takes, returned=[])


def _is_further(tensor: torch.Tensor) -> bool:
    """Return whether a tensor may be an input of the whole: data, with several numbers for each sample."""
    return not tensor.requires_grad and tensor.dim() > 0 and tensor.numel() > len(tensor)


class Beside:
    """Frozen modules that a step calls, by name, and what they return.

    `parts`: those that are parts of the model, with weights that both sides share. `made`: what they have returned, and
    what was made of that alone: the tensors by id(), which lives as long. `names`: those of what a loss takes of it.
    """

    def __init__(self, parts: Mapping[str, Frozen]) -> None:
        self.parts, self.made, self.names = parts, dict[int, torch.Tensor](), list[str]()
        self._called: dict[nn.Module, str] = {}

    def note(self, module: nn.Module, name: str, outputs: Any) -> None:
        """Note a call of a frozen module."""
        self._called[module] = name
        self.add(outputs)

    def add(self, value: Any) -> None:
        """Add all tensors in a value."""
        self.made |= {id(each): each for each in tensors(value)}

    def described(self, number: Callable[[nn.Module], int], copies: Sequence[Copy]) -> dict[str, Frozen]:
        """Return the modules by name, but for copies of the model; `number` returns that of one among all modules."""
        copied = {each for each, _ in copies}
        own = {name: each for each, name in self._called.items() if each not in copied}
        sizes = {name: [tensor.numel() for tensor in each.state_dict().values()] for name, each in own.items()}
        return {name: Frozen(number=number(each), sizes=sizes[name]) for name, each in own.items()}
