"""The doctor's part on this side: a program is built, two steps of it are observed, and some more are timed."""

import contextlib
import functools
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch import nn

from parity.doctor.clock import Clock
from parity.doctor.drive import OBSERVED, TIMED, WARM, Drive, Program, building_errors, outcome, steps
from parity.doctor.evidence import Evidence, Time
from parity.doctor.files import Files
from parity.runtime.job import DoctorJob
from torch_impl.harness import devices
from torch_impl.harness.doctor import built_in, source, users, values
from torch_impl.harness.doctor.build import Building
from torch_impl.harness.doctor.collectives import Collectives
from torch_impl.harness.doctor.observer import Observer
from torch_impl.harness.doctor.timing import timed
from torch_impl.harness.pretend import on_cpu, pretend

Clocked = Callable[[], AbstractContextManager[None]]  # what a timed step runs in


def examine(job: DoctorJob) -> None:
    """Write what this rank saw. Raises UsageError, and what the program raised while it was built."""
    rank = devices.rank()
    files = Files(Path(job.folder), rank.number)
    files.answer_where()
    torch.manual_seed(0)
    with _machine(job) as evidence:
        with Building() as building, building_errors(source.line_of):
            program = _program(job, evidence)
        files.built()
        observer = Observer(program.model, building, evidence.devices)
        clock = Clock(functools.partial(_wait, job))
        clocked = functools.partial(timed, clock, program.model)
        context = functools.partial(_context, job, evidence, observer, clocked, files)
        before = values.root_mean_squares(program.model)
        evidence.later = outcome(Drive(program, context, files, rank.of, steps(job)), source.line_of)
        evidence.changed = values.root_mean_squares(program.model) != before
        evidence.modules = building.modules(program.model)
        evidence.weights = building.weights(program.model, observer.optimizers)
        evidence.moves = building.moves
        evidence.times += clock.result(evidence.physical[0])
    files.write(evidence)
    if job.timed and job.virtual and rank.of == 1:
        evidence.times = _on_cpu(job) or evidence.times
        files.write(evidence)


def _program(job: DoctorJob, evidence: Evidence) -> Program:
    """A case's or the user's, on its devices."""
    if job.case:
        return built_in.program(job, evidence.devices)
    program = users.program(job)
    evidence.moved = not job.step and _move(program.model, evidence.devices[evidence.rank % len(evidence.devices)])
    return program


def _on_cpu(job: DoctorJob) -> list[Time]:
    """The times where each device is the CPU itself; none if the program needs more. Virtual ones slow down each op."""
    clock = Clock(lambda: None)
    with contextlib.suppress(Exception), on_cpu(job.devices):
        program = _program(job, Evidence(side="torch", devices=[f"cuda:{i}" for i in range(job.devices)]))
        contexts = [contextlib.nullcontext] * WARM + [functools.partial(timed, clock, program.model)] * TIMED
        files = Files(Path(job.folder), 1)  # as if of another rank: the parent sees that it goes on
        Drive(program, lambda number, batch: contexts[number](), files, 1, len(contexts)).run()
    return clock.result("CPU")


def _wait(job: DoctorJob) -> None:
    """Until all devices have done what they were given."""
    for number in range(0 if job.virtual else job.devices):
        torch.cuda.synchronize(number)


@contextmanager
def _machine(job: DoctorJob) -> Iterator[Evidence]:
    """The devices of the job, real or not, and the process group if there are ranks; evidence of them alone."""
    rank = devices.rank()
    evidence = Evidence(side="torch", rank=rank.number, ranks=rank.of, asked=job.asked)
    evidence.own_step = bool(job.case or job.step)
    evidence.devices = [f"cuda:{i}" for i in range(job.devices)]
    with contextlib.ExitStack() as stack:
        if job.virtual and job.case and job.case.strategy == "tensor_parallel":
            # A DTensor and a virtual one cannot be the same tensor: these ranks are on the CPU as it is.
            evidence.devices, evidence.physical = ["cpu"] * job.devices, ["CPU (process)"] * job.devices
        elif job.virtual:
            evidence.physical = ["CPU (virtual)"] * job.devices
            stack.enter_context(pretend(job.devices))
        else:
            evidence.physical = [torch.cuda.get_device_name(i) for i in range(job.devices)]
        if rank.of > 1:
            devices.join(torch.device("cpu") if job.virtual else torch.device("cuda", rank.number))
            # The program's own call would be the second one.
            stack.enter_context(mock.patch.object(dist, "init_process_group", lambda *args, **kwargs: None))
        elif not job.case:
            stack.enter_context(mock.patch.dict(os.environ, _alone()))
        yield evidence


def _alone() -> dict[str, str]:
    """What torchrun tells a process that is alone, so that a program for several finds its group."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    numbers = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"}
    return {**numbers, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}


def _context(
    job: DoctorJob, evidence: Evidence, observer: Observer, clocked: Clocked, files: Files, number: int, batch: Any
) -> AbstractContextManager[Any]:
    """What a step runs in."""
    if number < OBSERVED:
        return _observed(evidence, observer, files, batch)
    if number < OBSERVED + WARM or not job.timed:
        return contextlib.nullcontext()
    if number < OBSERVED + WARM + TIMED:
        return clocked()
    return _profiled(evidence, Path(job.profile))


@contextmanager
def _observed(evidence: Evidence, observer: Observer, files: Files, batch: Any) -> Iterator[None]:
    start = time.perf_counter()
    with Collectives(files), observer.step(built_in.named(batch)) as step:
        evidence.steps.append(step)
        yield
        step.seconds = time.perf_counter() - start


@contextmanager
def _profiled(evidence: Evidence, folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    with torch.profiler.profile() as profile:
        yield
    evidence.profile = str(folder / f"torch-rank-{evidence.rank}.json")
    profile.export_chrome_trace(evidence.profile)


def _move(model: nn.Module, device: str) -> bool:
    """To the device, unless the user's program has put a part of it on one; whether it was moved."""
    tensors = [*model.parameters(), *model.buffers()]
    if any(tensor.device.type != "cpu" for tensor in tensors):
        return False
    model.to(device)
    return True
