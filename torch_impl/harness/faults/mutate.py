"""How faults are planted: something is replaced by another thing for the length of a run."""

import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

import torch
from torch import nn

from parity.core.arrays import Floats
from torch_impl.harness import weights

Patches = Callable[[], list[AbstractContextManager]]


def replaced(owner: Any, name: str, change: Callable[[Any], Any]) -> Patches:
    """An attribute becomes what `change` makes of it."""
    return lambda: [mock.patch.object(owner, name, change(getattr(owner, name)))]


def constant(kind: type, name: str, value: Any) -> Patches:
    """Instances of `kind` are made with another value of the named argument."""

    def change(made: Callable[..., None]) -> Callable[..., None]:
        def other(self: Any, *args: Any, **kwargs: Any) -> None:
            given = inspect.signature(made).bind_partial(self, *args, **kwargs)
            given.arguments.pop(name, None)
            made(*given.args, **given.kwargs, **{name: value})

        return other

    return replaced(kind, "__init__", change)


def loaded(change: Callable[[str, Floats], Floats]) -> Patches:
    """The model starts from what `change` makes of each parameter, by its name."""

    def load(original: Callable[..., None]) -> Callable[..., None]:
        return lambda model, values: original(model, {name: change(name, each) for name, each in values.items()})

    return replaced(weights, "load", load)


def together(*several: Patches) -> Patches:
    """All of them."""
    return lambda: [patch for patches in several for patch in patches()]


def unused(*parameters: nn.Parameter) -> torch.Tensor:
    """Zero, so that what is left out has a gradient all the same, of zeros."""
    return sum(parameter.sum() for parameter in parameters) * 0
