"""The structure of a model: its wrappers, the modules it holds without PyTorch's knowledge, and its DTensors.

DTensors are told without importing their module: that takes nearly as long as importing PyTorch, and few need it.
"""

import contextlib
import itertools
import sys
import types
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

WRAPPERS = {DistributedDataParallel: "ddp", nn.DataParallel: "data_parallel"}
PLAIN = frozenset(vars(nn.Module()))  # the attributes that every module has
DEPTH = 4  # how many lists, dicts and objects deep hidden modules are searched for


def is_dtensor(value: Any) -> bool:
    """Return whether a value is a DTensor."""
    return is_dtensor_class(type(value))


def is_dtensor_class(kind: type) -> bool:
    """Return whether a class is DTensor or derived from it; there is none before somebody has imported its module."""
    return issubclass(kind, getattr(sys.modules.get("torch.distributed.tensor"), "DTensor", ()))


def distributed(model: nn.Module) -> str:
    """Return what the model is wrapped in, such as "ddp"; "" if it is not wrapped."""
    if isinstance(model, DistributedDataParallel) and (model.find_unused_parameters or model.static_graph):
        return "ddp_partial"
    return next((name for kind, name in WRAPPERS.items() if isinstance(model, kind)), "")


def inner(model: nn.Module) -> nn.Module:
    return model.module if distributed(model) else model


def first(module: nn.Module) -> torch.Tensor | None:
    """Return a tensor of the module, which stands for all, as they are moved together; None if it has none."""
    tensor = next(itertools.chain(module.parameters(), module.buffers()), None)
    return None if tensor is None else tensor.detach()  # because moving a parameter changes it in place


def hidden(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield modules with parameters or buffers that hang in a list, dict, object or closure, but are not registered."""
    seen = {id(module) for module in inner(model).modules()} | {id(model)}
    for path, module in inner(model).named_modules():
        for name, value in vars(module).items():
            if name not in PLAIN:
                yield from _search(f"{path}.{name}" if path else name, value, seen, DEPTH)


def frozen_by_train(model: nn.Module) -> list[str]:
    """Return the parameters that are trained, and that a train() of the model's own would freeze; it is called."""
    modules, trained = list(inner(model).modules()), []
    if model.training and any(type(module).train is not nn.Module.train for module in modules):
        trained = [(name, tensor) for name, tensor in inner(model).named_parameters() if tensor.requires_grad]
        with contextlib.suppress(Exception):
            model.train()
    late = [name for name, parameter in trained if not parameter.requires_grad]
    for _, parameter in trained:
        parameter.requires_grad_(True)
    return late


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
    """Yield (access, part) for everything that hangs in the value, such as ("[0]", x)."""
    if isinstance(value, (list, tuple)):
        yield from ((f"[{i}]", part) for i, part in enumerate(value))
    elif isinstance(value, dict):
        yield from ((f"[{key!r}]", part) for key, part in value.items())
    elif isinstance(value, types.FunctionType):
        for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
            with contextlib.suppress(ValueError):  # the closure's variable is not set yet
                if name != "self":  # the owner of the function, not a part of what holds it
                    yield f".{name}", cell.cell_contents
    elif hasattr(value, "__dict__") and not isinstance(value, (type, types.ModuleType, torch.Tensor, Optimizer)):
        yield from ((f".{name}", part) for name, part in vars(value).items())
