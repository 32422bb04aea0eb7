"""The doctor's part on this side: a program is built, two steps of it are observed, and some more are timed."""

import contextlib
import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from parity.checkup.clock import Clock
from parity.checkup.drive import OBSERVED, TIMED, WARM, Drive, Program, steps
from parity.checkup.evidence import Evidence, Time
from parity.checkup.files import Files
from parity.runtime.job import Examination
from torch_impl.harness import devices
from torch_impl.harness.checkup import built_in, users
from torch_impl.harness.checkup.build import Building
from torch_impl.harness.checkup.collectives import Collectives
from torch_impl.harness.checkup.observer import Observer
from torch_impl.harness.checkup.timing import timed
from torch_impl.harness.pretend import on_cpu, pretend

Step = Callable[[], AbstractContextManager[None]]


def examine(job: Examination) -> None:
    """Write what this rank saw. Raises UsageError, and what the program raised while it was built."""
    rank = devices.rank()
    files = Files(Path(job.folder), rank.number)
    files.answer_where()
    torch.manual_seed(0)
    with _machine(job) as evidence:
        with Building() as building:
            program = _program(job, evidence)
        observer = Observer(program.model, building, evidence.devices)
        clock = Clock(torch.cuda.synchronize if not job.virtual else lambda: None)
        time = functools.partial(timed, clock, program.model)
        context = functools.partial(_context, job, evidence, observer, time, files)
        Drive(program, context, files, rank.of, steps(job)).run()
        evidence.modules = building.modules(program.model)
        evidence.weights = building.weights(program.model, observer.optimizers)
        evidence.moves = building.moves
        evidence.times += clock.result(evidence.physical[0])
    if job.timed and job.virtual and rank.of == 1:
        evidence.times = _on_cpu(job, files) or evidence.times
    files.write(evidence)


def _program(job: Examination, evidence: Evidence) -> Program:
    """A case's or the user's, on its devices."""
    if job.case:
        return built_in.program(job, evidence.devices)
    program = users.program(job)
    evidence.moved = not job.step and _move(program.model, evidence.devices[0])
    return program


def _on_cpu(job: Examination, files: Files) -> list[Time]:
    """The times where each device is the CPU itself; none if the program needs more. Virtual ones slow down each op."""
    clock = Clock(lambda: None)
    with contextlib.suppress(Exception), on_cpu(job.devices):
        program = _program(job, Evidence(side="torch", devices=[f"cuda:{i}" for i in range(job.devices)]))
        contexts = [contextlib.nullcontext] * WARM + [functools.partial(timed, clock, program.model)] * TIMED
        Drive(program, lambda number, batch: contexts[number](), files, 1, len(contexts)).run()
    return clock.result("CPU")


@contextmanager
def _machine(job: Examination) -> Iterator[Evidence]:
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
        yield evidence


def _context(
    job: Examination, evidence: Evidence, observer: Observer, time: Step, files: Files, number: int, batch: Any
) -> AbstractContextManager[Any]:
    """What a step runs in."""
    if number < OBSERVED:
        return _observed(evidence, observer, files, batch)
    if number < OBSERVED + WARM or not job.timed:
        return contextlib.nullcontext()
    if number < OBSERVED + WARM + TIMED:
        return time()
    return _profiled(evidence, Path(job.profile))


@contextmanager
def _observed(evidence: Evidence, observer: Observer, files: Files, batch: Any) -> Iterator[None]:
    with Collectives(files), observer.step(built_in.named(batch)) as step:
        evidence.steps.append(step)
        yield


@contextmanager
def _profiled(evidence: Evidence, folder: Path) -> Iterator[None]:
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
