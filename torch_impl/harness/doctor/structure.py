"""The modules of a model: what it is wrapped in, and what it holds without PyTorch's knowledge."""

import contextlib
import itertools
import types
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

WRAPPERS = {DistributedDataParallel: "ddp", nn.DataParallel: "data_parallel"}
PLAIN = frozenset(vars(nn.Module()))  # the attributes that every module has
DEPTH = 4  # how far into lists, dicts and objects a hidden module is looked for


def distributed(model: nn.Module) -> str:
    """What the model is wrapped in, "ddp"."""
    if isinstance(model, DistributedDataParallel) and (model.find_unused_parameters or model.static_graph):
        return "ddp_partial"
    return next((name for kind, name in WRAPPERS.items() if isinstance(model, kind)), "")


def inner(model: nn.Module) -> nn.Module:
    """The model without such a wrapper."""
    return model.module if distributed(model) else model


def first(module: nn.Module) -> torch.Tensor | None:
    """A tensor that it holds: as the others are, if all were moved at once. Detached: a parameter is moved in place."""
    held = next(itertools.chain(module.parameters(), module.buffers()), None)
    return None if held is None else held.detach()


def hidden(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Modules that hold something and hang in a list, a dict, an object or a closure, but are not registered.

    The `self` of a function within a method is what the function belongs to, no part of what holds it.
    """
    seen = {id(module) for module in inner(model).modules()} | {id(model)}
    for path, module in inner(model).named_modules():
        for name, value in vars(module).items():
            if name not in PLAIN:
                yield from _search(f"{path}.{name}" if path else name, value, seen, DEPTH)


def _search(path: str, value: Any, seen: set[int], depth: int) -> Iterator[tuple[str, nn.Module]]:
    if depth == 0 or id(value) in seen:
        return
    if isinstance(value, nn.Module):
        seen.update(id(module) for module in value.modules())
        if first(value) is not None:
            yield path, value
    else:
        for step, part in _parts(value):
            yield from _search(path + step, part, seen, depth - 1)


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """What hangs in it, and how it is reached."""
    if isinstance(value, (list, tuple)):
        yield from ((f"[{i}]", part) for i, part in enumerate(value))
    elif isinstance(value, dict):
        yield from ((f"[{key!r}]", part) for key, part in value.items())
    elif isinstance(value, types.FunctionType):
        for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
            with contextlib.suppress(ValueError):  # nothing is in it yet
                if name != "self":
                    yield f".{name}", cell.cell_contents
    elif hasattr(value, "__dict__") and not isinstance(value, (type, types.ModuleType, torch.Tensor, Optimizer)):
        yield from ((f".{name}", part) for name, part in vars(value).items())
