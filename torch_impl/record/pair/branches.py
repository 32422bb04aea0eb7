"""Reports to an observer the values at which a model branches: at kinks, in masks, and as ids of embeddings.

From them the report says which branches of the model the inputs have reached.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from parity.pairs.vary.coverage import Observer
from torch_impl.record import calls, tree
from torch_impl.record.weights import array

# Functions with kinks at fixed values: the lower and the upper one.
KINKS: dict[str, tuple[float | None, float | None]] = {
    "relu": (0.0, None),
    "relu_": (0.0, None),
    "relu6": (0.0, 6.0),
    "leaky_relu": (0.0, None),
    "leaky_relu_": (0.0, None),
    "rrelu": (0.0, None),
    "prelu": (0.0, None),
    "elu": (0.0, None),
    "elu_": (0.0, None),
    "selu": (0.0, None),
    "celu": (0.0, None),
    "hardswish": (-3.0, 3.0),
    "hardsigmoid": (-3.0, 3.0),
    "softplus": (None, 20.0),
}
# Functions whose kinks are arguments: name and default of the lower and of the upper one, in this order.
CLAMPS: dict[str, tuple[tuple[str, float | None], tuple[str, float | None]]] = {
    "hardtanh": (("min_val", -1.0), ("max_val", 1.0)),
    "clamp": (("min", None), ("max", None)),
    "clamp_": (("min", None), ("max", None)),
    "clip": (("min", None), ("max", None)),
}
ENDS: dict[str, str] = {"clamp_min": "min", "clamp_min_": "min", "clamp_max": "max", "clamp_max_": "max"}
MASKS: dict[str, tuple[int, str]] = {"masked_fill": (1, "mask"), "masked_fill_": (1, "mask"), "where": (0, "condition")}


@contextmanager
def observed(model: nn.Module, observer: Observer) -> Iterator[None]:
    """Report within the block the arguments of the model's branching functions."""
    with calls.tracked(), _Observing(observer, tree.paths(model)):
        yield


class _Observing(TorchFunctionMode):
    """The mode that sees every torch function; `paths` holds those of the model's modules."""

    def __init__(self, observer: Observer, paths: dict[nn.Module, str]) -> None:
        super().__init__()
        self.observer, self.paths = observer, paths

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = kwargs or {}
        with torch._C.DisableTorchFunction():
            self._see(getattr(func, "__name__", ""), args, given)
        return func(*args, **given)

    def _see(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Report the arguments of a function if it masks, looks up embeddings, or has kinks."""
        where = calls.innermost(self.paths) or ""
        x = args[0] if args else kwargs.get("input")
        if name in MASKS:
            mask = _argument(args, kwargs, *MASKS[name], None)
            if isinstance(mask, torch.Tensor) and mask.ndim:
                self.observer.mask(where, array(mask))
        elif name == "embedding" and isinstance(x, torch.Tensor):
            weight, padding = (
                _argument(args, kwargs, 1, "weight", None),
                _argument(args, kwargs, 2, "padding_idx", None),
            )
            self.observer.ids(where, array(x), len(weight), None if padding in (None, -1) else padding % len(weight))
        elif isinstance(x, torch.Tensor) and not x.is_complex() and (limits := _limits(name, args, kwargs)):
            function = name.rstrip("_")
            self.observer.kinks("clamp" if name in CLAMPS or name in ENDS else function, where, array(x), *limits)


def _limits(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[float | None, float | None] | None:
    """Return a function's lower and upper kink; None if it has none, or if they are not plain numbers."""
    if name in KINKS:
        return KINKS[name]
    if name in CLAMPS:
        limits = [_argument(args, kwargs, position, *argument) for position, argument in enumerate(CLAMPS[name], 1)]
    elif name in ENDS:
        limit = _argument(args, kwargs, 1, ENDS[name], None)
        limits = [limit, None] if ENDS[name] == "min" else [None, limit]
    else:
        return None
    numbers = all(limit is None or isinstance(limit, (int, float)) for limit in limits)
    return (limits[0], limits[1]) if numbers else None


def _argument(args: tuple[Any, ...], kwargs: dict[str, Any], position: int, name: str, default: Any) -> Any:
    return args[position] if len(args) > position else kwargs.get(name, default)
