"""A user's program: the functions that the flags name, or a plain step where there is none."""

import inspect
import itertools
from collections.abc import Callable, Iterator

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from parity.core.errors import UsageError
from parity.doctor.drive import Program, steps
from parity.doctor.program import load
from parity.runtime.job import DoctorJob

Inputs = dict[str, torch.Tensor]


def program(job: DoctorJob) -> Program:
    """What `build` returns, trained by `step`. Raises UsageError."""
    build = load("--torch", job.build)
    step = load("--step", job.step, "model", "inputs") if job.step else _step
    model = build()
    if not isinstance(model, nn.Module):
        raise UsageError(f"--torch={job.build}: expected a torch.nn.Module, received {type(model).__name__}")

    def train(batches: Iterator[Inputs], on_step: Callable[[], None]) -> None:
        for inputs in batches:
            step(model, inputs)
            on_step()

    return Program(model, _batches(job), train)


def _batches(job: DoctorJob) -> Iterator[Inputs]:
    """As a data loader gives them: on the host, new ones for each step."""
    for number in range(steps(job)):
        yield {given.name: torch.from_numpy(given.values(number)) for given in job.inputs}


def _step(model: nn.Module, inputs: Inputs) -> None:
    """Where no step is given: the inputs moved, forward, the sum of the outputs, backward."""
    model.zero_grad()
    held = itertools.chain(model.parameters(), model.buffers())
    device = next((tensor.device for tensor in held), torch.device("cpu"))
    moved = {name: tensor.to(device) for name, tensor in inputs.items()}
    outputs = model(**moved) if _takes(model, moved) else model(*moved.values())
    floats = [leaf for leaf in tree_leaves(outputs) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    if floats:
        home = floats[0].device
        torch.stack([leaf.sum().to(home) for leaf in floats]).sum().backward()


def _takes(model: nn.Module, inputs: Inputs) -> bool:
    """Whether the model's arguments have the names of the inputs."""
    try:
        inspect.signature(model.forward).bind(**inputs)
    except TypeError:
        return False
    return True
