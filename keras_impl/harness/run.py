"""One run of one case, recorded."""

import importlib
from collections.abc import Iterator

import keras
import numpy as np
import tensorflow as tf

from keras_impl import losses, models, optimizers
from keras_impl.harness import faults, precision, weights
from keras_impl.harness.probe import Probe, own
from parity.config import schema
from parity.config.schema import Case
from parity.data.batches import Batch, Dataset
from parity.random import Floats
from parity.runtime.environment import THREADS
from parity.trace.manifest import Layout
from parity.trace.recorder import Recorder

NAME = "keras"

tf.config.threading.set_intra_op_parallelism_threads(THREADS)
tf.config.threading.set_inter_op_parallelism_threads(THREADS)


def versions() -> dict[str, str]:
    """The framework packages and their versions."""
    return {"keras": keras.__version__, "tensorflow": tf.__version__}


def run(case: Case, at: str, initial: dict[str, Floats], dataset: Dataset, recorder: Recorder, fault: str) -> Layout:
    """Train the case's model at the precision `at`, recording; say where its parameters were."""
    strategy = importlib.import_module(f"keras_impl.strategies.{case.strategy}")
    keras.utils.clear_session()
    with precision.policy(at), faults.planted(fault, at):
        model, optimizer = models.build(case.model), optimizers.build(case)
        example = _tensors(dataset.evaluation(), case.model)[0]
        model(example if len(example) > 1 else example[0])  # makes the variables
        optimizer.build(model.trainable_variables)
        weights.load(model, initial)
        probe = Probe(model, optimizer, recorder, case)
        loss = probe.watch(losses.build(case.loss))
        probe.on_step()
        train = strategy.fit if case.fit else strategy.train
        train(model, optimizer, loss, _steps(dataset), probe.on_step)
        strategy.evaluate(model, example)
        probe.on_step()
    return weights.layout(model)


def _steps(dataset: Dataset) -> Iterator[list]:
    for micro_batches in dataset.steps():
        yield [(*_tensors(batch, dataset.case.model), batch.share) for batch in micro_batches]


def _tensors(batch: Batch, model: schema.Model) -> tuple[tuple[tf.Tensor, ...], tf.Tensor]:
    """Inputs and target as tensors, in the model's axis order; floats take the run's dtype."""
    inputs = tuple(_tensor(own(array, model)) for array in batch.inputs)
    return inputs, _tensor(own(batch.target, model))


def _tensor(array: Floats) -> tf.Tensor:
    floating = np.issubdtype(array.dtype, np.floating)
    return tf.constant(array, keras.config.floatx() if floating else array.dtype)
