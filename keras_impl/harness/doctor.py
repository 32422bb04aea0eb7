"""The doctor's part on this side: a program is built, two steps of it are observed, and some more are timed."""

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import keras
import tensorflow as tf

from keras_impl.harness import devices
from keras_impl.harness.checkup import built_in
from keras_impl.harness.checkup.build import Building
from keras_impl.harness.checkup.functions import Functions
from keras_impl.harness.checkup.observer import Observer
from keras_impl.harness.checkup.state import kept
from keras_impl.harness.checkup.timing import timed
from keras_impl.harness.pretend import pretend
from parity.checkup.clock import Clock
from parity.checkup.drive import OBSERVED, TIMED, WARM, Drive, Program, steps
from parity.checkup.evidence import Evidence
from parity.checkup.files import Files
from parity.checkup.program import load
from parity.errors import UsageError
from parity.runtime.job import Examination

Inputs = dict[str, tf.Tensor]
Step = Callable[[], AbstractContextManager[None]]
HOST = "CPU:0"


def examine(job: Examination) -> None:
    """Write what this rank saw. Raises UsageError, and what the program raised while it was built."""
    rank = devices.rank()
    files = Files(Path(job.folder), rank.number)
    files.answer_where()
    keras.utils.clear_session()
    keras.utils.set_random_seed(0)
    with _machine(job) as evidence:
        with Building() as building:
            program = built_in.program(job, evidence.devices) if job.case else _program(job)
        observer = Observer(program.model, building, evidence.devices)
        functions = Functions()
        clock = Clock(tf.test.experimental.sync_devices if rank.of == 1 else lambda: None)  # not for remote devices
        time = functools.partial(timed, clock, program.model)
        shapes: set[Any] = set()
        context = functools.partial(_context, job, evidence, observer, functions, time, shapes)
        Drive(program, context, files, rank.of, steps(job)).run()
        evidence.modules = building.modules(program.model)
        evidence.weights = building.weights(program.model, observer.optimizers)
        evidence.moves = building.moves
        # A batch of another shape, an epoch's last one, is traced anew.
        evidence.retraces = [each for each in functions.retraces if each.count > len(shapes)]
        evidence.eager = functions.eager
        evidence.times += clock.result(evidence.physical[0])
    files.write(evidence)


@contextmanager
def _machine(job: Examination) -> Iterator[Evidence]:
    """The devices of the job, real or not; evidence of them alone."""
    rank = devices.rank()
    evidence = Evidence(side="keras", rank=rank.number, ranks=rank.of, own_step=bool(job.case or job.step))
    evidence.devices = [f"GPU:{i}" for i in range(job.devices)]
    with contextlib.ExitStack() as stack:
        if job.virtual and rank.of > 1:
            # MultiWorkerMirroredStrategy has named the devices of all workers already.
            evidence.devices, evidence.physical = [HOST], ["CPU (process)"]
        elif job.virtual:
            evidence.physical = ["CPU (virtual)"] * job.devices
            stack.enter_context(pretend(job.devices))
            # The names of a case's devices, which the built-in strategies are given.
            stack.enter_context(mock.patch.object(devices, "names", lambda count: evidence.devices[:count]))
        else:
            evidence.physical = devices.physical(job.devices)
        yield evidence


def _context(
    job: Examination,
    evidence: Evidence,
    observer: Observer,
    functions: Functions,
    time: Step,
    shapes: set[Any],
    number: int,
    batch: Any,
) -> AbstractContextManager[Any]:
    """What a step runs in. `shapes`: receives those of its batch."""
    if number < OBSERVED:
        return _observed(evidence, observer, batch)
    shapes.add(tuple(tuple(tensor.shape) for tensor in built_in.named(batch).values()))
    if number < OBSERVED + WARM:
        return functions
    if number < OBSERVED + WARM + TIMED:
        return _timed(functions, time)
    return _profiled(evidence, Path(job.profile))


@contextmanager
def _observed(evidence: Evidence, observer: Observer, batch: Any) -> Iterator[None]:
    # It runs eagerly, where all can be seen; the program goes on as if it had not.
    with kept(), observer.step(built_in.named(batch)) as step:
        evidence.steps.append(step)
        yield


@contextmanager
def _timed(functions: Functions, time: Step) -> Iterator[None]:
    with functions, time():
        yield


@contextmanager
def _profiled(evidence: Evidence, folder: Path) -> Iterator[None]:
    tf.profiler.experimental.start(str(folder))
    try:
        yield
    finally:
        tf.profiler.experimental.stop()
    evidence.profile = str(folder)


def _program(job: Examination) -> Program:
    """The user's. Raises UsageError."""
    build = load("--keras", job.build)
    step = load("--step", job.step) if job.step else _step
    model = build()
    if not isinstance(model, (keras.Model, keras.Layer)):
        raise UsageError(f"--keras={job.build}: expected a keras.Model, received {type(model).__name__}")

    def train(batches: Iterator[Inputs], on_step: Callable[[], None]) -> None:
        for inputs in batches:
            step(model, inputs)
            on_step()

    return Program(model, _batches(job), train)


def _batches(job: Examination) -> Iterator[Inputs]:
    """As a data loader gives them: on the host, new ones for each step."""
    for number in range(steps(job)):
        with tf.device(HOST):
            batch = {given.name: tf.constant(given.values(number)) for given in job.inputs}
        yield batch


def _step(model: keras.Model, inputs: Inputs) -> None:
    """Where no step is given: forward, the sum of the outputs, backward."""
    with tf.GradientTape() as tape:
        outputs = tf.nest.flatten(_call(model, inputs))
        total = tf.add_n([tf.reduce_sum(output) for output in outputs if output.dtype.is_floating])
    tape.gradient(total, model.trainable_variables)


def _call(model: keras.Model, inputs: Inputs) -> Any:
    """With one tensor, a dict, arguments by name, or a list: as the model takes its inputs."""
    if isinstance(getattr(model, "input", None), dict):
        return model(inputs, training=True)
    if len(inputs) == 1:
        return model(*inputs.values(), training=True)
    if set(inputs) <= set(inspect.signature(model.call).parameters):
        return model(**inputs, training=True)
    return model(list(inputs.values()), training=True)
