"""A built-in case as a program that is not recorded, trained by its strategy as when it is."""

import functools
import importlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any

from keras_impl import losses, models, optimizers
from keras_impl.record import data, weights
from keras_impl.record.run import options
from parity.runtime.drive import Run
from parity.runtime.program import Program


def program(run: Run, names: list[str]) -> Program:
    """Return the run's case as a program, placed on the devices with these names."""
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
