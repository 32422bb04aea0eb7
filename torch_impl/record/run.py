"""Runs one job: trains a built-in case's model (or hands over to a user's pair), recorded or as a plain program."""

import functools
import importlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from parity.config import schema, strategies
from parity.core.patches import calling
from parity.runtime.drive import Account, Program, Run
from parity.runtime.environment import threads
from parity.selftest.mutate import planted
from parity.trace.layout import Layout
from torch_impl import losses, models, optimizers
from torch_impl.instruments import devices
from torch_impl.instruments.devices import Machine, rank
from torch_impl.record import data, precision, specimen, tree, weights
from torch_impl.record.masks import Masks
from torch_impl.record.pair import run as pair
from torch_impl.record.probe import Probe
from torch_impl.record.recorders import LayoutRecorder

__all__ = ["NAME", "rank", "run", "versions"]
NAME = "torch"

torch.set_num_threads(threads())
torch.set_num_interop_threads(threads())


def versions() -> dict[str, str]:
    """Return the versions of the framework packages."""
    return {"torch": str(torch.__version__)}


def run(run: Run) -> Account:
    """Train the model of a case while recording it; a user's pair is passed on to `pair.run`."""
    if run.pair is not None:
        return pair.run(run)
    machine = devices.find(run.case)
    layout_recorder = LayoutRecorder(machine, run.case.replicas)
    with precision.policy(run.at), machine.available(), planted("torch_impl", run.fault, run.at):
        try:
            return _train(run, machine, layout_recorder)
        finally:
            layout_recorder.stop()


def _train(run: Run, machine: Machine, layout_recorder: LayoutRecorder) -> Account:
    """Train the model by the case's strategy, with recorder, layout recorder and masks attached."""
    case, kind = run.case, (machine.physical or machine.logical[0]).type
    layouts: list[Layout] = []
    masks = Masks(case.seed, None if case.distribution.is_gathered else next(iter(run.recorders)))

    def on_step() -> None:
        if not layouts:
            layout_recorder.stop()
            layouts.append(layout_recorder.layout(state))
        probe.on_step()
        masks.on_step()

    strategy, whole, model, optimizer = _placed(run, machine.logical, kind)
    state = weights.Weights(whole, weights.trained(whole, optimizer), optimizer)
    probe = Probe(run, whole, state, layout_recorder)
    probe.attach()
    loss = calling(probe.watched_loss, precision.autocast(run.at, kind)(losses.build(case.loss)))
    probe.on_step()
    if run.watch:
        layout_recorder.start(tree.called(whole))
    with masks.drawn(whole):
        strategy.train(model, optimizer, loss, data.steps(run), on_step)
        strategy.evaluate(model, data.evaluation(run))
    probe.on_step()
    return Account(layouts[0], probe.modules, classes=probe.classes)


def _placed(run: Run, logical: list[torch.device], kind: str) -> tuple[Any, nn.Module, Any, Optimizer]:
    """Place a case's model, with its initial weights, by the case's strategy on devices that compute on this kind.

    Returns the strategy, the whole model, what the strategy trains of it, and the optimizer.
    """
    case, whole = run.case, []

    def make_model() -> nn.Module:
        build = specimen.build if isinstance(case.model, schema.Specimen) else models.build
        whole.append(build(case.model))
        weights.load(whole[0], run.weights)
        precision.cast(whole[0], run.at, kind)
        return whole[0]

    strategy = importlib.import_module(f"torch_impl.strategies.{case.strategy}")
    placed = strategy.place(make_model, functools.partial(optimizers.build, case), logical, **options(run))
    return strategy, whole[0], *placed


def options(run: Run) -> dict[str, Any]:
    """Return the strategy-specific arguments of `place`."""
    axis, strategy = run.dataset.batch_axis, run.case.distribution
    match strategy:
        case strategies.DataParallel():
            return {"dim": axis}
        case strategies.DDP():
            return {"broadcast_buffers": strategy.broadcasts_buffers}
        case strategies.Pipelined():
            staged = {"schedule": strategy.schedule, "stage_blocks": strategy.stage_blocks}
            return {"example": data.example(run), "dim": axis, **staged}
        case strategies.Staged():
            return {"stage_blocks": strategy.stage_blocks}
    return {}


def program(run: Run, names: list[str]) -> Program:
    """Return the run's case as a program, placed on the devices with these names."""
    case, logical = run.case, [torch.device(name) for name in names]
    strategy, whole, model, optimizer = _placed(run, logical, logical[0].type)
    loss = precision.autocast(run.at, logical[0].type)(losses.build(case.loss))

    def train(batches: Iterator[Any], on_step: Callable[[], None]) -> None:
        strategy.train(model, optimizer, loss, batches, on_step)

    # With pipeline stages, a stage is all that this rank has of the model.
    part = getattr(model, "module", model) if case.distribution.is_staged else whole
    return Program(part, data.steps(run), train, model)
