"""A built-in case as a program to examine, trained by its strategy as when it is recorded."""

import functools
import importlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from keras_impl import losses, models, optimizers
from keras_impl.instruments import devices
from keras_impl.record import data, weights
from keras_impl.record.run import options
from parity.doctor.drive import Program, plain_run
from parity.runtime.job import DoctorJob


def program(job: DoctorJob, names: list[str]) -> Program:
    """Return the job's case as a program, placed on the devices with these names."""
    run = plain_run(job, devices.rank())
    case = run.case
    strategy = importlib.import_module(f"keras_impl.strategies.{case.strategy}")
    make_model = functools.partial(models.build, case.model)
    make_optimizer = functools.partial(optimizers.build, case)
    model, optimizer = strategy.place(make_model, make_optimizer, names, data.input_shape(run), **options(case))
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


def named(batch: Any) -> dict[str, tf.Tensor]:
    """Return the tensors of a step's batch by name; those of a case's micro-batches by number."""
    if isinstance(batch, dict):
        return batch
    tensors = [leaf for leaf in tf.nest.flatten(batch) if tf.is_tensor(leaf)]
    return {str(number): tensor for number, tensor in enumerate(tensors)}
