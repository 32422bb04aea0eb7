"""A built-in case as a program that is not recorded, trained by its strategy as when it is."""

import functools
import importlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

from parity.runtime.drive import Run
from parity.runtime.program import Program
from torch_impl import losses, models, optimizers
from torch_impl.record import data, precision, weights
from torch_impl.record.run import options


def program(run: Run, names: list[str]) -> Program:
    """Return the run's case as a program, placed on the devices with these names."""
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
    return Program(part, data.steps(run), train, model)
