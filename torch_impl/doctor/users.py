"""The program under examination: the functions that the flags name, with a default step, or a built-in case."""

import inspect
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from parity.core.errors import UsageError
from parity.doctor.drive import steps
from parity.doctor.program import load
from parity.runtime.job import DoctorJob
from parity.runtime.program import Program
from torch_impl.instruments import devices
from torch_impl.instruments.structure import distributed

Inputs = dict[str, torch.Tensor]


def program(job: DoctorJob) -> Program:
    """Return the program: what `build` returns, trained by `step`.

    Raises UsageError if the flags name no functions, or `build` returns no model.
    """
    build = load("--torch", job.build)
    step = load("--step", job.step, "model", "inputs") if job.step else _step
    model = build()
    if not isinstance(model, nn.Module):
        raise UsageError(f"--torch={job.build}: expected a torch.nn.Module, received {type(model).__name__}")

    def train(batches: Iterator[Inputs], on_step: Callable[[], None]) -> None:
        for inputs in batches:
            step(model, inputs)
            on_step()

    return Program(model, _batches(job, model), train)


def named(batch: Any) -> dict[str, torch.Tensor]:
    """Return the tensors of a step's batch by name; those of a built-in case's micro-batches by number."""
    if isinstance(batch, dict):
        return batch
    tensors = [leaf for leaf in tree_leaves(batch) if isinstance(leaf, torch.Tensor)]
    return {str(number): tensor for number, tensor in enumerate(tensors)}


def _batches(job: DoctorJob, model: nn.Module) -> Iterator[Inputs]:
    """Yield batches as a data loader does: on the host, new ones for each step.

    Under DistributedDataParallel each rank has batches of its own; other programs may split a batch among the ranks.
    """
    own, of = devices.rank() if distributed(model).startswith("ddp") else (0, 1)
    for number in range(steps(job)):
        yield {given.name: torch.from_numpy(given.values(number * of + own)) for given in job.inputs}


def _step(model: nn.Module, inputs: Inputs) -> None:
    """Make a default step: move the inputs, forward, sum of the outputs, backward.

    Used if the user gives no step.
    """
    model.zero_grad()
    weights = itertools.chain(model.parameters(), model.buffers())
    device = next((tensor.device for tensor in weights), torch.device("cpu"))
    moved = {name: tensor.to(device) for name, tensor in inputs.items()}
    outputs = model(**moved) if _takes(model, moved) else model(*moved.values())
    floats = [leaf for leaf in tree_leaves(outputs) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    if floats:
        home = floats[0].device
        torch.stack([leaf.sum().to(home) for leaf in floats]).sum().backward()


def _takes(model: nn.Module, inputs: Inputs) -> bool:
    """Return whether the model's arguments have the names of the inputs."""
    try:
        inspect.signature(model.forward).bind(**inputs)
    except TypeError:
        return False
    return True
