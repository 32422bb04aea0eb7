"""Small programs under observation, on two virtual GPUs."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from parity.doctor.evidence import Step
from torch_impl.doctor.observer import Observer
from torch_impl.instruments.build import Building

GPUS = ["cuda:0", "cuda:1"]


class Seen(NamedTuple):
    """What was seen of a program, step by step."""

    model: nn.Module
    building: Building
    observer: Observer
    steps: list[Step]


def observe(
    build: Callable[[], nn.Module], train: Callable[[nn.Module, Any], None], steps: int = 1, **inputs: torch.Tensor
) -> Seen:
    """Build a model and train it; in each step the inputs are other tensors."""
    with Building() as building:
        model = build()
    observer = Observer(model, building, GPUS)
    seen = []
    for _ in range(steps):
        batch = {name: tensor.clone() for name, tensor in inputs.items()}
        with observer.step(batch) as step:
            train(model, batch)
        seen.append(step)
    return Seen(model, building, observer, seen)


def step(function: Callable[..., Any], *arguments: Any, **inputs: torch.Tensor) -> Step:
    """The last of two steps that call the function, of a model without parameters."""
    return observe(nn.Identity, lambda model, batch: function(*batch.values(), *arguments), 2, **inputs).steps[-1]


def line(function: Callable[..., Any], text: str) -> str:
    """The line of the function in which the text stands, as it is reported."""
    lines, first = inspect.getsourcelines(function)
    (number,) = [first + i for i, each in enumerate(lines) if text in each]
    path = Path(inspect.getsourcefile(function))
    return f"{path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path}:{number}"
