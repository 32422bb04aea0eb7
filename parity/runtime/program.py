"""A model with its batches and its training loop, in which nothing is recorded: what is examined, or timed."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec

from parity.config import weights
from parity.config.schema import Case
from parity.data.batches import Dataset
from parity.runtime.drive import Rank, Run, recorders
from parity.runtime.job import Job


class Program(NamedTuple):
    """A program, built.

    Attributes:
        model: the model.
        batches: its batches.
        train: train(batches, on_step) makes a step with each batch and calls `on_step()` after it.
        called: what the training calls, where the model is called by something around it.
    """

    model: Any
    batches: Iterator[Any]
    train: Callable[[Iterator[Any], Callable[[], None]], None]
    called: Any = None


def plain_run(case: Case, steps: int, rank: Rank, folder: str) -> Run:
    """Return the run of so many steps of a built-in case whose recorders note the samples and nothing else."""
    case = msgspec.structs.replace(case, steps=steps)
    data = Dataset(case)
    silent = recorders(Job(case=case, runs=[], folder=folder), "", rank, data)
    return Run(case, case.precision, weights.initial(case), data, silent, watch=False, fault="")
