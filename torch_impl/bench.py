"""A training in bursts of steps, to be timed: a built-in case or a user's pair, as a program that is not recorded."""

import functools
from collections.abc import Callable

import torch
from torch import nn

from parity.bench.lanes import BATCHES, Bursts, endless
from parity.core.errors import UsageError
from parity.runtime.drive import Program, plain_run
from parity.runtime.job import BenchJob
from parity.runtime.serve import Following
from torch_impl.doctor.observer import timed, timed_communication
from torch_impl.instruments import devices
from torch_impl.instruments.devices import Machine
from torch_impl.record import precision
from torch_impl.record import run as built_in
from torch_impl.record.pair import run as pair

CPU = torch.device("cpu")


def bench(job: BenchJob, following: Following) -> None:
    """Train in bursts until the process is ended; `following` returns each burst after the first.

    Raises UsageError where the training cannot be carried out in the job's mode, and what the training raises.
    """
    rank, machine = devices.rank(), _machine(job)
    wait, peak = functools.partial(_wait, machine), functools.partial(_peak, machine)
    bursts = Bursts(job, rank, following, wait, peak, timed, timed_communication)
    torch.manual_seed(job.case.seed)
    with precision.policy(job.case.precision), machine.available():
        program = _program(job, machine)
        if job.mode == "compile":
            _compile(program.called or program.model)
        bursts.model = program.model
        program.train(endless(program.batches), _checked(job, bursts.on_step))


def _machine(job: BenchJob) -> Machine:
    """Return the devices. PyTorch has one CPU, which it is not told to divide: virtual devices would cost time."""
    machine = devices.find(job.case)
    if machine.physical == CPU:
        return machine._replace(logical=[CPU] * len(machine.logical), physical=None)
    return machine


def _program(job: BenchJob, machine: Machine) -> Program:
    if job.pair:
        return pair.program(job.case, job.pair)
    run = plain_run(job.case, BATCHES, devices.rank(), job.folder)
    return built_in.program(run, [str(device) for device in machine.logical])


def _compile(model: object) -> None:
    if not isinstance(model, nn.Module):
        raise UsageError(f"torch.compile: this strategy trains a {type(model).__name__}, not a torch.nn.Module")
    model.compile()


def _checked(job: BenchJob, on_step: Callable[[], None]) -> Callable[[], None]:
    """Return `on_step`, which also checks that torch.compile has compiled something. Raises UsageError."""
    if job.mode != "compile":
        return on_step
    from torch._dynamo.utils import counters  # takes seconds to import

    def checked() -> None:
        if not counters["frames"]["ok"]:
            raise UsageError("torch.compile: nothing is compiled, because the strategy calls the model's parts itself")
        on_step()

    return checked


def _wait(machine: Machine) -> None:
    for device in set(machine.logical):
        if device.type == "cuda":
            torch.cuda.synchronize(device)


def _peak(machine: Machine) -> int:
    gpus = {device for device in machine.logical if device.type == "cuda"}
    return max((torch.cuda.max_memory_allocated(device) for device in gpus), default=0)
