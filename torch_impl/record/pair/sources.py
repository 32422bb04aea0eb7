"""Remembers where in the user's code each part of a model is made."""

import inspect
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch
from torch import nn

from parity.runtime import construction
from parity.runtime.survey import Made

KINDS: tuple[type, ...] = (nn.Module,)
RESETS = ("reset_parameters", "_reset_parameters")  # the methods by which torch's modules fill their parameters
FIRST = 8  # elements of a parameter that are kept, to see whether it was changed


class Sources:
    """The lines that made the objects of the classes in KINDS, and what modules begin with, while it is recorded."""

    def __init__(self) -> None:
        self._made: dict[int, tuple[Any, Made]] = {}  # with the object, so that no other gets its id
        self._begun: dict[int, tuple[nn.Parameter, list[float]]] = {}  # with its first elements
        self._ended: dict[int, list[float]] = {}

    def of(self, made: Any) -> Made | None:
        """Return where an object was made; None if that was not recorded, or not in the user's code."""
        _, source = self._made.get(id(made), (None, None))
        return source

    def has_chosen(self, weight: Any) -> bool:
        """Return whether a weight was changed after a module of torch's had filled it, while that was recorded."""
        _, begun = self._begun.get(id(weight), (None, None))
        return begun is not None and begun != self._ended[id(weight)]

    @contextmanager
    def recorded(self) -> Iterator[None]:
        """Record every object that is made within the block."""
        originals = [(kind, kind.__init__) for kind in KINDS]
        for kind, original in originals:
            kind.__init__ = self._recording(original)
        try:
            with ExitStack() as patches:
                for kind, name in _resets():
                    patches.enter_context(mock.patch.object(kind, name, self._beginning(getattr(kind, name))))
                yield
            self._ended = {key: _first(parameter) for key, (parameter, _) in self._begun.items()}
        finally:
            for kind, original in originals:
                kind.__init__ = original

    def _recording(self, original: Any) -> Any:
        def initialise(made: Any, *args: Any, **kwargs: Any) -> None:
            if id(made) not in self._made and (source := construction.made(made)):
                self._made[id(made)] = made, source
            original(made, *args, **kwargs)

        # Keras looks up the names of the arguments, both with and without following __wrapped__.
        initialise.__signature__ = inspect.signature(original)
        return initialise

    def _beginning(self, original: Any) -> Any:
        def reset(module: nn.Module, *args: Any, **kwargs: Any) -> None:
            original(module, *args, **kwargs)
            self._begun |= {id(each): (each, _first(each)) for each in module.parameters() if not _is_empty(each)}

        return reset


def _resets() -> Iterator[tuple[type, str]]:
    """Yield the classes of torch's that fill their parameters, with the name of the method that does."""
    kinds: list[type] = [nn.Module]
    for kind in kinds:
        kinds += [each for each in kind.__subclasses__() if each.__module__.startswith("torch.nn.")]
    yield from {(kind, name) for kind in kinds for name in RESETS if name in vars(kind)}


def _is_empty(parameter: nn.Parameter) -> bool:
    return parameter.is_meta or isinstance(parameter, nn.parameter.UninitializedParameter)


def _first(parameter: torch.Tensor) -> list[float]:
    first: list[float] = parameter.detach().reshape(-1)[:FIRST].tolist()
    return first
