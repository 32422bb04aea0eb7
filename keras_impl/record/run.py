"""Runs one job: trains a built-in case's model (or hands over to a user's pair), recorded or as a plain program."""

import functools
import importlib
import itertools
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import keras
import tensorflow as tf

from keras_impl import losses, models, optimizers
from keras_impl.instruments import devices
from keras_impl.instruments.devices import rank
from keras_impl.record import data, precision, specimen, weights
from keras_impl.record.canonical import LAYOUTS, Replica
from keras_impl.record.masks import Masks
from keras_impl.record.pair import run as pair
from keras_impl.record.probe import Probe
from keras_impl.record.recorders import LayoutRecorder
from keras_impl.strategies import ddp
from parity.config import schema, strategies
from parity.core.patches import around, calling
from parity.runtime.drive import Account, Program, Run
from parity.selftest.mutate import planted

__all__ = ["NAME", "rank", "run", "versions"]
NAME = "keras"

tf.get_logger().setLevel("ERROR")  # it would warn of the eager evaluation; compiling is not worth it for a single batch
if rank().of > 1:
    ddp.workers_strategy()  # must be made before TensorFlow runs any op


def versions() -> dict[str, str]:
    """Return the versions of the framework packages."""
    return {"keras": keras.__version__, "tensorflow": tf.__version__}


def run(run: Run) -> Account:
    """Train the model of a case while recording it; a user's pair is passed on to `pair.run`."""
    if run.pair is not None:
        return pair.run(run)
    case = run.case
    keras.utils.clear_session()
    # To trace a graph takes longer than to run the few steps op by op. The run whose layout is watched must be traced.
    is_graph = run.watch or case.graph or case.distribution.fit
    with precision.policy(run.at), precision.eagerly(not is_graph), planted("keras_impl", run.fault, run.at):
        strategy, model, optimizer = _placed(run, devices.names(case.devices))
        replicas: dict[int, Replica] = {}
        # Strategies return a list of models (one per replica), or, with tf.distribute, a single model whose variables
        # have a copy per replica of this process.
        for number, (replica, recorder) in enumerate(run.recorders.items()):
            is_list = isinstance(model, list)
            own = (model[replica], optimizer[replica]) if is_list else (model, optimizer)
            replicas[replica] = Replica(recorder, *own, weights.Weights(*own, 0 if is_list else number))
        for replica in replicas.values():
            weights.load(replica.model, run.weights)
        masks = Masks(case.seed, LAYOUTS.get(type(case.model), {}))
        for number, replica in replicas.items():
            masks.attach(replica.model, number)
        layout_recorder = LayoutRecorder(case.devices // case.replicas)
        probe = Probe(replicas, case, layout_recorder)
        probe.attach()
        loss = calling(probe.watched_loss, losses.build(case.loss))
        probe.on_step()

        def on_step() -> None:
            probe.on_step()
            masks.on_step()

        if run.watch:
            layout_recorder.start()
        train = strategy.fit if case.distribution.fit else strategy.train
        has_own_reduction = hasattr(strategy, "all_reduce")  # else the reduction is inside the optimizer
        with around(strategy, "all_reduce", probe.reduction) if has_own_reduction else nullcontext():
            train(model, optimizer, loss, data.steps(run), on_step)
        strategy.evaluate(model, data.evaluation(run))
        probe.on_step()
    return Account(layout_recorder.layout(case, replicas.values()), probe.modules, classes=probe.classes)


def _placed(run: Run, names: list[str]) -> tuple[Any, Any, Any]:
    """Place a case's model by the case's strategy; return the strategy, the model or models, and their optimizers."""
    case = run.case
    strategy = importlib.import_module(f"keras_impl.strategies.{case.strategy}")
    build = specimen.build if isinstance(case.model, schema.Specimen) else models.build
    makers = functools.partial(build, case.model), functools.partial(optimizers.build, case)
    return strategy, *strategy.place(*makers, names, data.input_shape(run), **options(case))


def options(case: schema.Case) -> dict[str, Any]:
    """Return the strategy-specific arguments of `place`."""
    strategy = case.distribution
    match strategy:
        case strategies.DDP():
            return {"workers": strategy.workers, "broadcast_buffers": strategy.broadcasts_buffers}
        case strategies.Pipelined():
            return {"schedule": strategy.schedule, "stage_blocks": strategy.stage_blocks}
        case strategies.Staged():
            return {"stage_blocks": strategy.stage_blocks}
    return {}


def program(run: Run, names: list[str]) -> Program:
    """Return the run's case as a program, placed on the devices with these names."""
    case = run.case
    strategy, model, optimizer = _placed(run, names)
    whole = model if isinstance(model, list) else [model]
    for replica in whole:
        weights.load(replica, run.weights)
    loss = losses.build(case.loss)
    steps = data.steps(run)
    # TensorFlow itself splits and reads a tf.data.Dataset.
    is_dataset = case.distribution.distribute_dataset

    def train(batches: Iterator[Any], on_step: Callable[[], None]) -> None:
        run_steps = strategy.fit if case.distribution.fit else strategy.train
        run_steps(model, optimizer, loss, steps if is_dataset else batches, on_step)

    return Program(whole[0], itertools.repeat(()) if is_dataset else steps, train)
