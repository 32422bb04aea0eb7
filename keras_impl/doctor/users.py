"""The program under examination: the functions that the flags name, with a default step, or a built-in case."""

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf

from parity.core.errors import UsageError
from parity.doctor.drive import steps
from parity.doctor.program import load
from parity.runtime.job import DoctorJob
from parity.runtime.program import Program

Inputs = dict[str, tf.Tensor]
HOST = "CPU:0"


def program(job: DoctorJob) -> Program:
    """Return the program: what `build` returns, trained by `step`.

    Raises UsageError if the flags name no functions, or `build` returns no model.
    """
    build = load("--keras", job.build)
    step = load("--step", job.step, "model", "inputs") if job.step else _step
    model = build()
    if not isinstance(model, (keras.Model, keras.Layer)):
        raise UsageError(f"--keras={job.build}: expected a keras.Model, received {type(model).__name__}")

    def train(batches: Iterator[Inputs], on_step: Callable[[], None]) -> None:
        for inputs in batches:
            step(model, inputs)
            on_step()

    return Program(model, _batches(job), train)


def named(batch: Any) -> dict[str, tf.Tensor]:
    """Return the tensors of a step's batch by name; those of a built-in case's micro-batches by number."""
    if isinstance(batch, dict):
        return batch
    tensors = [leaf for leaf in tf.nest.flatten(batch) if tf.is_tensor(leaf)]
    return {str(number): tensor for number, tensor in enumerate(tensors)}


def _batches(job: DoctorJob) -> Iterator[Inputs]:
    """Yield batches as a data loader does: on the host, new ones for each step."""
    for number in range(steps(job)):
        with tf.device(HOST):
            batch = {given.name: tf.constant(given.values(number)) for given in job.inputs}
        yield batch


def _step(model: keras.Model, inputs: Inputs) -> None:
    """Make a default step: forward, sum of the outputs, backward.

    Used if the user gives no step.
    """
    with tf.GradientTape() as tape:
        outputs = tf.nest.flatten(_call(model, inputs))
        total = tf.add_n([tf.reduce_sum(output) for output in outputs if output.dtype.is_floating])
    tape.gradient(total, model.trainable_variables)


def _call(model: keras.Model, inputs: Inputs) -> Any:
    """Call the model with one tensor, a dict, arguments by name, or a list, whichever it takes."""
    if isinstance(getattr(model, "input", None), dict):
        return model(inputs, training=True)
    if len(inputs) == 1:
        return model(*inputs.values(), training=True)
    if set(inputs) <= set(inspect.signature(model.call).parameters):
        return model(**inputs, training=True)
    return model(list(inputs.values()), training=True)
