"""A user's model of a pair as a program that is not recorded: trained, or only called where the pair has no [train]."""

from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from parity.config.schema import Case
from parity.data.pairs import PairData
from parity.runtime.program import Program
from parity.trace import survey
from parity.trace.mapping import PairContext
from torch_impl.instruments import devices
from torch_impl.record import precision
from torch_impl.record.pair import values
from torch_impl.record.pair.build import Inputs, call, ready, tensors
from torch_impl.record.pair.training import Batch, Training


def program(case: Case, halves: PairContext) -> Program:
    """Return this side's model with the pair's initial weights, its inputs over and over, and its training.

    Raises UsageError and BackendError.
    """
    pair, data, device = case.model, PairData(case, halves.search), devices.find(case).logical[0]
    model = ready(case, case.precision, halves.search, device, [])
    values.load(model, survey.Initial(Path(halves.survey)), Path(halves.survey))
    inputs = tensors(data.step(0), device)
    mixed = precision.autocast(case.precision, device.type)

    def infer(batches: Iterator[Inputs], on_step: Callable[[], None]) -> None:
        model.eval()
        for batch in batches:
            with torch.no_grad(), mixed:
                call(model, pair, batch)
            on_step()

    def train(batches: Iterator[Inputs], on_step: Callable[[], None]) -> None:
        model.train()
        training = Training(case, model, data, halves.search, halves.survey, case.precision)
        for batch in batches:
            training.step(Batch(0, batch))
            on_step()

    return Program(model, iter([inputs]), train if pair.train else infer)
