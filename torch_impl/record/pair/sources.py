"""Remembers where in the user's code each part of a model is made."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import nn

from parity.core.patches import around
from parity.runtime import construction

RESETS = ("reset_parameters", "_reset_parameters")  # the methods by which torch's modules fill their parameters


class Sources(construction.Sources):
    """The lines that made the modules, and what these begin with, while it is recorded."""

    kinds = (nn.Module,)

    def has_chosen(self, weight: Any) -> bool:
        """Return whether a weight was changed after a module of torch's had filled it, while that was recorded."""
        return bool(self.is_changed(weight))

    def _filling(self) -> Iterator[AbstractContextManager]:
        kinds: list[type] = [nn.Module]
        for kind in kinds:
            kinds += [each for each in kind.__subclasses__() if each.__module__.startswith("torch.nn.")]
        resets = {(kind, name) for kind in kinds for name in RESETS if name in vars(kind)}
        return (around(kind, name, self._reset) for kind, name in resets)

    def _reset(self, reset: Callable[..., None], module: nn.Module, *args: Any, **kwargs: Any) -> None:
        reset(module, *args, **kwargs)
        for each in module.parameters():
            if not (each.is_meta or isinstance(each, nn.parameter.UninitializedParameter)):
                self._note_filled(each)

    def _first(self, weight: torch.Tensor) -> list[float]:
        first: list[float] = weight.detach().reshape(-1)[: construction.FIRST].tolist()
        return first
