"""A built-in case as a program to examine, trained by its strategy as when it is recorded."""

import functools
import importlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from parity.doctor.drive import Program, plain_run
from parity.runtime.job import DoctorJob
from torch_impl import losses, models, optimizers
from torch_impl.instruments import devices
from torch_impl.record import data, precision, weights
from torch_impl.record.run import options


def program(job: DoctorJob, names: list[str]) -> Program:
    """Return the job's case as a program, placed on the devices with these names."""
    run = plain_run(job, devices.rank())
    case, logical = run.case, [torch.device(name) for name in names]
    strategy = importlib.import_module(f"torch_impl.strategies.{case.strategy}")
    whole = []

    def make_model() -> torch.nn.Module:
        whole.append(models.build(case.model))
        weights.load(whole[0], run.weights)
        precision.cast(whole[0], run.at, logical[0].type)
        return whole[0]

    model, optimizer = strategy.place(make_model, functools.partial(optimizers.build, case), logical, **options(run))
    loss = precision.autocast(run.at, logical[0].type)(losses.build(case.loss))

    def train(batches: Iterator[Any], on_step: Callable[[], None]) -> None:
        strategy.train(model, optimizer, loss, batches, on_step)

    # With pipeline stages, a stage is all that this rank has of the model.
    part = getattr(model, "module", model) if case.distribution.is_staged else whole[0]
    return Program(part, data.steps(run), train)


def named(batch: Any) -> dict[str, torch.Tensor]:
    """Return the tensors of a step's batch by name; those of a case's micro-batches by number."""
    if isinstance(batch, dict):
        return batch
    tensors = [leaf for leaf in tree_leaves(batch) if isinstance(leaf, torch.Tensor)]
    return {str(number): tensor for number, tensor in enumerate(tensors)}
