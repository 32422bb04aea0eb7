"""One run of one case, recorded."""

import importlib
from collections.abc import Iterator

import torch

from parity.config.schema import Case
from parity.data.batches import Batch, Dataset
from parity.random import Floats
from parity.runtime.environment import THREADS
from parity.trace.manifest import Layout
from parity.trace.recorder import Recorder
from torch_impl import losses, models, optimizers
from torch_impl.harness import faults, precision, weights
from torch_impl.harness.probe import Probe

NAME = "torch"

torch.set_num_threads(THREADS)
torch.set_num_interop_threads(THREADS)


def versions() -> dict[str, str]:
    """The framework packages and their versions."""
    return {"torch": str(torch.__version__)}


def run(case: Case, at: str, initial: dict[str, Floats], dataset: Dataset, recorder: Recorder, fault: str) -> Layout:
    """Train the case's model at the precision `at`, recording; say where its parameters were."""
    strategy = importlib.import_module(f"torch_impl.strategies.{case.strategy}")
    with precision.policy(at), faults.planted(fault, at):
        model = models.build(case.model)
        weights.load(model, initial)
        optimizer, schedule = optimizers.build(case, model.parameters())
        probe = Probe(model, optimizer, recorder, case.accumulate)
        loss = probe.watch(precision.cast(model, losses.build(case.loss), at))
        probe.on_step()
        strategy.train(model, optimizer, loss, _steps(dataset), case.clip_norm, schedule, probe.on_step)
        strategy.evaluate(model, _tensors(dataset.evaluation())[0])
        probe.on_step()
    return weights.layout(model)


def _steps(dataset: Dataset) -> Iterator[list]:
    for micro_batches in dataset.steps():
        yield [(*_tensors(batch), batch.share) for batch in micro_batches]


def _tensors(batch: Batch) -> tuple[tuple[torch.Tensor, ...], torch.Tensor]:
    """Inputs and target as tensors; floats take the run's dtype."""
    inputs = tuple(_tensor(array) for array in batch.inputs)
    return inputs, _tensor(batch.target)


def _tensor(array: Floats) -> torch.Tensor:
    tensor = torch.from_numpy(array)
    return tensor.to(torch.get_default_dtype()) if tensor.is_floating_point() else tensor
