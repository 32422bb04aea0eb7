"""The observer: observes a step of training as the program runs it, without changing any result."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from parity.doctor.evidence import Place, Step
from torch_impl.instruments import source
from torch_impl.instruments.build import Building
from torch_impl.instruments.calls import Calls
from torch_impl.instruments.finite import AtenObserver
from torch_impl.instruments.ops import Cuts, Ops
from torch_impl.instruments.origins import Loaders
from torch_impl.instruments.training import Training


class Observer:
    """Observes a model that was built within `building`, and its training.

    `devices` names the devices as the program does ("cuda:0").
    """

    def __init__(self, model: nn.Module, building: Building, devices: list[str]):
        self.building = building
        self.origins = building.origins(model)
        self.calls = Calls(model, building, self.origins)
        cuts = Cuts(self.calls)
        self.training = Training(model, building, self.calls, self.origins, cuts)
        self.ops = Ops(self.calls, self.origins, devices, cuts, self.training.graphs, self.training.replicas)
        self.loaders = Loaders(self.origins)
        self.below = AtenObserver(self.calls, self.origins)

    @contextmanager
    def step(self, inputs: dict[str, torch.Tensor]) -> Iterator[Step]:
        """Run a step within the block, and fill in its evidence when it is over.

        An exception of the program is recorded as the step's failure, and does not propagate.
        """
        step = Step()
        for name, tensor in inputs.items():
            self.origins.note(tensor, f"input {name}")
        self.ops.begin(step, inputs)
        with (
            self.loaders.watched(step),
            self.ops.copies.watched(),
            self.training.watched(step, self.below.reached),
            self.calls.watched(step, self.ops.losses.fed, self.below.reached),
        ):
            try:
                with self.below, self.ops:
                    yield step
            except Exception as error:
                self._note_failure(step, error)
        self.training.finish()
        self.below.finish()
        self.calls.failing = None  # it would keep the frames of the step alive

    def _note_failure(self, step: Step, error: Exception) -> None:
        self.calls.failed(error, "", [], Place(phase=self.calls.phase))
        step.failure = self.calls.failing[1]
        step.failure.place.source = source.line_of(error.__traceback__)
