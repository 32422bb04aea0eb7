"""Random numbers of a script in the high run: those that it draws in float32, so that each run has the same data."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch

from parity.core.patches import around

FACTORIES = ("rand", "randn", "rand_like", "randn_like")
IN_PLACE = ("normal_", "uniform_", "exponential_", "log_normal_", "cauchy_", "geometric_", "bernoulli_")


def float32_draws() -> Iterator[AbstractContextManager[Any]]:
    """Yield patches by which is drawn in float32, and converted, what a script does not ask for in float64.

    A generator gives float64 other numbers, and more of its state. None where a run is not in float64.
    """
    if torch.get_default_dtype() == torch.float64:
        yield from (around(torch, name, _made) for name in FACTORIES)
        yield from (around(torch.Tensor, name, _filled) for name in IN_PLACE)


def _made(draw: Callable[..., torch.Tensor], *args: Any, **kwargs: Any) -> torch.Tensor:
    if kwargs.get("dtype") not in (None, torch.float32):
        return draw(*args, **kwargs)
    with torch._C.DisableTorchFunction():  # the mode that promotes would draw in float64
        return draw(*args, **kwargs | {"dtype": torch.float32}).double()


def _filled(draw: Callable[..., torch.Tensor], tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    if tensor.dtype != torch.float64:
        return draw(tensor, *args, **kwargs)
    with torch._C.DisableTorchFunction(), torch.no_grad():
        return tensor.copy_(draw(torch.empty_like(tensor, dtype=torch.float32), *args, **kwargs))
