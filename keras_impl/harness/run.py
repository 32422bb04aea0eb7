"""One run of one case, recorded."""

import contextlib
import functools
import importlib
from collections import defaultdict
from collections.abc import Iterator
from typing import Any
from unittest import mock

import keras
import numpy as np
import tensorflow as tf

from keras_impl import losses, models, optimizers
from keras_impl.harness import devices, faults, precision, weights
from keras_impl.harness.devices import rank
from keras_impl.harness.partitions import Watch
from keras_impl.harness.probe import Probe
from keras_impl.harness.replicas import Replica, own
from keras_impl.strategies import ddp, single
from parity.config import schema
from parity.data.batches import Batch
from parity.data.shards import Indices
from parity.layout.canonical import Layout
from parity.random import Floats
from parity.runtime.drive import Run

__all__ = ["NAME", "rank", "run", "versions"]

NAME = "keras"

tf.get_logger().setLevel("ERROR")  # it warns of an evaluation that is not compiled: one is not worth a trace
if rank().of > 1:
    ddp.workers_strategy()  # before TensorFlow runs any op


def versions() -> dict[str, str]:
    """The framework packages and their versions."""
    return {"keras": keras.__version__, "tensorflow": tf.__version__}


def run(run: Run) -> Layout:
    """Train the case's model, recording; say what happened where."""
    case = run.case
    strategy = importlib.import_module(f"keras_impl.strategies.{case.strategy}")
    keras.utils.clear_session()
    with precision.policy(run.at), faults.planted(run.fault, run.at):
        feed = Feed(run)
        make_model = functools.partial(models.build, case.model)
        make_optimizer = functools.partial(optimizers.build, case)
        places = devices.names(case.devices)
        model, optimizer = strategy.place(make_model, make_optimizer, places, feed.input_shape, **_options(case))
        replicas = _replicas(run, model, optimizer)
        for replica in replicas.values():
            weights.load(replica.model, run.weights)
        watch = Watch(case.devices // case.replicas)
        probe = Probe(replicas, case, watch)
        loss = probe.loss(losses.build(case.loss))
        probe.on_step()
        if run.watch:
            watch.start()
        train = strategy.fit if case.fit else strategy.train
        with _own_reduction(strategy, probe):
            train(model, optimizer, loss, feed.steps(strategy), probe.on_step)
        strategy.evaluate(model, feed.evaluation())
        probe.on_step()
    return _layout(case, replicas, watch)


def _options(case: schema.Case) -> dict[str, Any]:
    """What else the strategy's `place` is told."""
    match case.strategy:
        case "ddp":
            return {"workers": case.workers, "broadcast_buffers": not case.local_buffers}
        case "pipeline":
            return {"schedule": case.pipeline}
    return {}


def _replicas(run: Run, model: Any, optimizer: Any) -> dict[int, Replica]:
    """By number; those of tf.distribute share a model, whose variables have a copy for each in this process."""
    if isinstance(model, list):
        return {r: Replica(recorder, model[r], optimizer[r], 0) for r, recorder in run.recorders.items()}
    return {r: Replica(recorder, model, optimizer, i) for i, (r, recorder) in enumerate(run.recorders.items())}


def _own_reduction(strategy: Any, probe: Probe) -> Any:
    """Where a strategy reduces the gradients itself: what goes in is recorded."""
    if not hasattr(strategy, "all_reduce"):
        return contextlib.nullcontext()
    return mock.patch.object(strategy, "all_reduce", probe.reduction(strategy.all_reduce))


class Samples:
    """The data as one replica reads it, by indices; they are noted."""

    def __init__(self, feed: "Feed", replica: int):
        self.feed, self.replica = feed, replica

    def __len__(self) -> int:
        return self.feed.dataset.size

    def __getitems__(self, indices: list[int]) -> tuple[tuple[tf.Tensor, ...], tf.Tensor]:
        chosen = np.asarray(indices, np.int64)
        self.feed.drew(self.replica, chosen)
        return self.feed.tensors(self.feed.dataset.batch(chosen), self.replica)


class Feed:
    """The case's batches as tensors, in the form that its strategy takes; what is drawn is noted."""

    def __init__(self, run: Run):
        self.case, self.dataset, self.recorders = run.case, run.dataset, run.recorders
        # A replica of tf.distribute finds its part on its own device; the other strategies move it themselves.
        mirrored = self.case.strategy in ("data_parallel", "ddp", "all_reduce") and not self.case.workers
        self.places = devices.names(self.case.devices) if mirrored else [None] * self.case.replicas

    @property
    def input_shape(self) -> tuple:
        """What model.build takes: a shape, or one for each input."""
        inputs = self.dataset.evaluation()[0].inputs
        shapes = [(None, *own(array, self.case.model).shape[1:]) for array in inputs]
        return tuple(shapes) if len(shapes) > 1 else shapes[0]

    def steps(self, strategy: Any) -> Any:
        """For `train` or `fit`."""
        if self.case.strategy == "all_reduce":
            samples = [Samples(self, replica) for replica in range(self.case.replicas)]
            return strategy.batches(samples, self.case.data.batch, self.case.steps, self.case.seed)
        if self.case.distribute_dataset:
            return single.dataset(self._whole_steps())
        return self._whole_steps() if self.case.fit else self._steps()

    def evaluation(self) -> Any:
        """The inputs of each replica, or of the only one."""
        parts = self.dataset.evaluation()
        self._draw([[part] for part in parts])
        return self._listed([self.tensors(part, replica)[0] for replica, part in enumerate(parts)])

    def tensors(self, batch: Batch, replica: int = 0) -> tuple[tuple[tf.Tensor, ...], tf.Tensor]:
        """Inputs and target, on the replica's device."""
        model = self.case.model
        with tf.device(self.places[replica]):
            return tuple(_tensor(own(array, model)) for array in batch.inputs), _tensor(own(batch.target, model))

    def drew(self, replica: int, indices: Indices) -> None:
        """Note what a replica of this process has drawn."""
        if replica in self.recorders:
            self.recorders[replica].drew(indices)

    def _steps(self) -> Iterator[list]:
        """Micro-batches, of each replica where there are several."""
        for parts in self.dataset.steps():
            self._draw(parts)
            yield self._listed([self._micro_batches(part, replica) for replica, part in enumerate(parts)])

    def _whole_steps(self) -> Iterator[list]:
        """The batches whole, for TensorFlow to cut: into the parts that are noted, or the inputs differ."""
        for parts in self.dataset.steps():
            self._draw(parts)
            indices = np.concatenate([batch.indices for part in parts for batch in part])
            yield self._micro_batches([self.dataset.batch(indices, len(indices))], 0)

    def _micro_batches(self, batches: list[Batch], replica: int) -> list:
        with tf.device(self.places[replica]):
            shares = [tf.constant(batch.share, keras.config.floatx()) for batch in batches]
        return [(*self.tensors(batch, replica), share) for batch, share in zip(batches, shares, strict=True)]

    def _draw(self, parts: list[list[Batch]]) -> None:
        for replica, batches in enumerate(parts):
            self.drew(replica, np.concatenate([batch.indices for batch in batches]))

    def _listed(self, of_replicas: list) -> Any:
        return of_replicas if self.case.strategy in schema.REPLICATED else of_replicas[0]


def _tensor(array: Floats) -> tf.Tensor:
    floating = np.issubdtype(array.dtype, np.floating)
    return tf.constant(array, keras.config.floatx() if floating else array.dtype)


def _layout(case: schema.Case, replicas: dict[int, Replica], watch: Watch) -> Layout:
    parameters: dict[str, set[int]] = defaultdict(set)
    slots: dict[str, set[int]] = defaultdict(set)
    for replica in {id(replica.model): replica for replica in replicas.values()}.values():
        for found, numbers in zip(
            weights.residents(replica.model, replica.optimizer), (parameters, slots), strict=True
        ):
            for name, places in found.items():
                numbers[name].update(devices.number(place) for place in places)
    return Layout(
        devices=devices.physical(case.devices),
        parameters={name: sorted(held) for name, held in parameters.items()},
        optimizer_state={name: sorted(held) for name, held in slots.items()},
        **watch.evidence._asdict(),
        replicas=case.replicas,
    )
