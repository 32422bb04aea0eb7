"""A training in bursts of steps, to be timed: a built-in case or a user's pair, as a program that is not recorded."""

import functools
from unittest import mock

import keras
import tensorflow as tf

from keras_impl.doctor.observer import timed, timed_communication
from keras_impl.instruments import devices
from keras_impl.record import precision
from keras_impl.record import run as built_in
from keras_impl.record.pair import run as pair
from keras_impl.strategies import single
from parity.bench.lanes import BATCHES, Bursts, endless
from parity.core.errors import UsageError
from parity.core.patches import around
from parity.runtime.drive import Program, plain_run
from parity.runtime.job import BenchJob
from parity.runtime.serve import Following


def bench(job: BenchJob, following: Following) -> None:
    """Train in bursts until the process is ended; `following` returns each burst after the first.

    Raises UsageError where the training cannot be carried out in the job's mode, and what the training raises.
    """
    if job.mode == "xla" and job.case.distribution.fit:
        raise UsageError("XLA: the case's fit is written without it")
    # A recording turns Grappler off, whose graphs run faster and are no longer as written.
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": False})
    keras.utils.clear_session()
    keras.utils.set_random_seed(job.case.seed)
    rank = devices.rank()
    # With several workers some devices are remote, for which sync_devices does not work.
    wait = tf.test.experimental.sync_devices if rank.of == 1 else lambda: None
    peak = functools.partial(_peak, job.case.devices)
    bursts = Bursts(job, rank, following, wait, peak, timed, timed_communication)
    endlessly = around(single, "dataset", lambda dataset, steps: dataset(steps).repeat())
    # Functions are carried out eagerly, as graphs, or compiled by XLA.
    compiled = mock.patch.object(tf, "function", functools.partial(tf.function, jit_compile=True))
    carried_out = compiled if job.mode == "xla" else precision.eagerly(job.mode == "eager")
    with precision.policy(job.case.precision), carried_out, endlessly:
        program = _program(job)
        strategy = job.case.distribution
        takes_all = strategy.fit or strategy.distribute_dataset  # before its first step, and TensorFlow repeats them
        batches = program.batches if takes_all else endless(program.batches)
        bursts.model = program.model
        program.train(batches, bursts.on_step)


def _program(job: BenchJob) -> Program:
    if job.pair:
        return pair.program(job.case, job.pair)
    return built_in.program(plain_run(job.case, BATCHES, devices.rank(), job.folder), devices.names(job.case.devices))


def _peak(count: int) -> int:
    if devices.DEVICES.kind == "gpu":
        return max(tf.config.experimental.get_memory_info(name)["peak"] for name in devices.names(count))
    return 0
