"""Where in the user's code each part of a model is made; and draws of initial values that are replaced at once."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import nn

from parity.core.patches import applied, around
from parity.core.plain import subclasses
from parity.runtime import construction

RESETS = ("reset_parameters", "_reset_parameters")  # the methods by which torch's modules fill their parameters


class Sources(construction.Sources):
    """The lines that made the modules, and what these begin with, while it is recorded."""

    kinds = (nn.Module,)

    def _filling(self) -> Iterator[AbstractContextManager]:
        kinds = (kind for kind in subclasses(nn.Module) if kind.__module__.startswith("torch.nn."))
        resets = {(kind, name) for kind in kinds for name in RESETS if name in vars(kind)}
        return (around(kind, name, self._reset) for kind, name in resets)

    def _reset(self, reset: Callable[..., None], module: nn.Module, *args: Any, **kwargs: Any) -> None:
        reset(module, *args, **kwargs)
        for each in module.parameters():
            if not (each.is_meta or isinstance(each, nn.parameter.UninitializedParameter)):
                self._note_filled(each)

    def _first(self, weight: torch.Tensor) -> list[float]:
        return weight.detach().reshape(-1)[: construction.FIRST].tolist()


DRAWS = ("normal_", "uniform_")  # the methods that torch.nn.init and the layers call


def repeated_draws() -> AbstractContextManager[None]:
    """Draw only a part of a large parameter within the block, and repeat it in the rest.

    It is for models that are given other values: drawing 110 million numbers takes most of the time of building one.
    """
    return applied(around(torch.Tensor, name, _drawn) for name in DRAWS)


def _drawn(draw: Callable[..., Any], tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    if not isinstance(tensor, nn.Parameter) or tensor.numel() <= construction.PART or not tensor.is_contiguous():
        return draw(tensor, *args, **kwargs)
    first, *others = tensor.data.view(-1).split(construction.PART)
    draw(first, *args, **kwargs)
    for other in others:
        other.copy_(first[: len(other)])
    return tensor
