"""Random initial values that are replaced at once: of a large parameter, only a part is drawn."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import nn

from parity.core.patches import applied, around

DRAWS = ("normal_", "uniform_")  # the methods that torch.nn.init and the layers call
PART = 65_521  # numbers: a prime, so that the rows of a matrix are no repetitions


def repeated() -> AbstractContextManager[None]:
    """Draw only a part of a large parameter within the block, and repeat it in the rest.

    It is for models that are given other values: drawing 110 million numbers takes most of the time of building one.
    """
    return applied(around(torch.Tensor, name, _drawn) for name in DRAWS)


def _drawn(draw: Callable[..., Any], tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    if not isinstance(tensor, nn.Parameter) or tensor.numel() <= PART or not tensor.is_contiguous():
        return draw(tensor, *args, **kwargs)
    first, *others = tensor.data.view(-1).split(PART)
    draw(first, *args, **kwargs)
    for other in others:
        other.copy_(first[: len(other)])
    return tensor
