"""The doctor on this side: builds a program, observes two steps of it, and times some more.

The program is a built-in case, or made of the functions that the flags name, with a default step.
"""

import contextlib
import inspect
import random
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import keras
import numpy as np
import tensorflow as tf
from tensorflow.python.profiler.internal import _pywrap_profiler_plugin  # the converter of profiles has no public API

from keras_impl.doctor.observer import Observer, timed
from keras_impl.instruments import devices, source
from keras_impl.instruments.build import Building
from keras_impl.instruments.functions import Functions
from keras_impl.instruments.state import changes_undone
from keras_impl.instruments.training import sizes
from keras_impl.record import run as built_in
from parity.core.clock import Clock
from parity.core.patches import applied
from parity.doctor.drive import Drive, Files, building_errors, outcome, schedule, steps, users_program
from parity.doctor.evidence import Evidence
from parity.runtime.drive import Program, plain_run
from parity.runtime.job import DoctorJob

Inputs = dict[str, tf.Tensor]
HOST = "CPU:0"


def examine(job: DoctorJob) -> None:
    """Write what this rank observed. Raises UsageError, and any exception that the program raises while it is built."""
    rank = devices.rank()
    files = Files(Path(job.folder), rank.number)
    files.answer_where()
    keras.utils.clear_session()
    keras.utils.set_random_seed(0)
    with _machine(job) as evidence:
        with Building() as building, building_errors(source.line_of):
            program = _program(job, evidence)
        files.built()
        observer = Observer(program.model, building, evidence.devices)
        functions = Functions()
        # With several workers some devices are remote, for which sync_devices does not work.
        clock = Clock(tf.test.experimental.sync_devices if rank.of == 1 else lambda: None)
        shapes: set[Any] = set()
        start: list[float] = []  # the size of each parameter before the first update

        def shaped(batch: Any, *contexts: AbstractContextManager[Any]) -> AbstractContextManager[Any]:
            shapes.add(tuple(tuple(tensor.shape) for tensor in named(batch).values()))
            return applied(contexts)

        raw = Path(job.folder) / f"{rank.number}-profile"
        contexts = schedule(
            job,
            observed=partial(_observed, evidence, observer, start),
            plain=lambda batch: shaped(batch, functions),
            timed=lambda batch: shaped(batch, functions, timed(clock, program.model)),
            profiled=lambda batch: shaped(batch, _profiled(evidence, raw, Path(job.profile))),
        )
        evidence.later = outcome(Drive(program, contexts, files, rank.of), source.line_of)
        evidence.changed = sizes(program.model) != start
        evidence.modules = building.modules(program.model)
        evidence.weights = building.weights(program.model, observer.optimizers)
        evidence.moves = building.moves
        # A batch of another shape, such as the last one of an epoch, is traced again rightly.
        evidence.retraces = [retrace for retrace in functions.retraces.values() if retrace.count > len(shapes)]
        evidence.eager = list(functions.eager.values())
        evidence.times += clock.result("CPU" if job.virtual else evidence.physical[0])
    files.write(evidence)


def _program(job: DoctorJob, evidence: Evidence) -> Program:
    if not job.case:
        return users_program(job, "keras", (keras.Model, keras.Layer), _step, lambda model: _batches(job))
    return built_in.program(plain_run(job.case, steps(job), devices.rank(), job.folder), evidence.devices)


@contextmanager
def _machine(job: DoctorJob) -> Iterator[Evidence]:
    """Provide the devices of the job, real or virtual. Yields evidence in which only the devices are filled in."""
    rank = devices.rank()
    evidence = Evidence(side="keras", rank=rank.number, ranks=rank.of, asked=job.asked)
    evidence.own_step = bool(job.case or job.step)
    evidence.devices = [f"GPU:{i}" for i in range(job.devices)]
    with contextlib.ExitStack() as stack:
        if job.virtual and rank.of > 1:
            # MultiWorkerMirroredStrategy has fixed the devices of all workers already.
            evidence.devices, evidence.physical = [HOST], ["CPU (process)"]
        elif job.virtual:
            evidence.physical = ["CPU (virtual)"] * job.devices
            stack.enter_context(devices.pretend(job.devices))
            # The built-in strategies get the names of a case's devices from here.
            stack.enter_context(mock.patch.object(devices, "names", lambda count: evidence.devices[:count]))
        else:
            evidence.physical = devices.physical(job.devices)
        yield evidence


@contextmanager
def _observed(evidence: Evidence, observer: Observer, start: list[float], batch: Any) -> Iterator[None]:
    # The observed step runs eagerly, where everything can be seen; then the program continues as if it had not run.
    with changes_undone():
        for _ in evidence.steps:  # each step draws other numbers than those before it
            np.random.random(), random.random()
        begun = time.perf_counter()
        with observer.step(named(batch)) as step:
            evidence.steps.append(step)
            yield
            step.seconds = time.perf_counter() - begun
    start[:] = start or sizes(observer.model)  # some models have no parameters before their first step


@contextmanager
def _profiled(evidence: Evidence, raw: Path, folder: Path) -> Iterator[None]:
    tf.profiler.experimental.start(str(raw))
    try:
        yield
    finally:
        tf.profiler.experimental.stop()
    # Convert to JSON, the format of torch's profile, which Perfetto reads.
    profiles = [str(path) for path in raw.rglob("*.xplane.pb")]
    trace, _ = _pywrap_profiler_plugin.xspace_to_tools_data(profiles, "trace_viewer@")
    folder.mkdir(parents=True, exist_ok=True)
    evidence.profile = str(folder / f"keras-rank-{evidence.rank}.json")
    Path(evidence.profile).write_bytes(trace)


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
    """Make a default step: forward, sum of the outputs, backward. Used if the user gives no step."""
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
