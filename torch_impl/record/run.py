"""Runs one job: trains a built-in case's model (or hands over to a user's pair), and records it.

Also trains such a case as a program that is not recorded.
"""

import functools
import importlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from parity.config import schema, strategies
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
    case = run.case
    strategy = importlib.import_module(f"torch_impl.strategies.{case.strategy}")
    kind = (machine.physical or machine.logical[0]).type
    whole: list[nn.Module] = []
    layouts: list[Layout] = []
    masks = Masks(case.seed, None if case.distribution.is_gathered else next(iter(run.recorders)))

    def make_model() -> nn.Module:
        build = specimen.build if isinstance(case.model, schema.Specimen) else models.build
        model = build(case.model)
        weights.load(model, run.weights)
        precision.cast(model, run.at, kind)
        whole.append(model)
        return model

    def on_step() -> None:
        if not layouts:
            layout_recorder.stop()
            layouts.append(layout_recorder.layout(state))
        probe.on_step()
        masks.on_step()

    make_optimizer = functools.partial(optimizers.build, case)
    model, optimizer = strategy.place(make_model, make_optimizer, machine.logical, **options(run))
    state = weights.Weights(whole[0], weights.trained(whole[0], optimizer), optimizer)
    probe = Probe(run, whole[0], state, layout_recorder)
    probe.attach()
    loss = probe.watch_loss(precision.autocast(run.at, kind)(losses.build(case.loss)))
    probe.on_step()
    if run.watch:
        layout_recorder.start(tree.called(whole[0]))
    with masks.drawn(whole[0]):
        strategy.train(model, optimizer, loss, data.steps(run), on_step)
        strategy.evaluate(model, data.evaluation(run))
    probe.on_step()
    return Account(layouts[0], probe.modules, classes=probe.classes)


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
