"""The doctor on this side: builds a program, observes two steps of it, and times some more.

The program is a built-in case, or made of the functions that the flags name, with a default step.
"""

import contextlib
import inspect
import itertools
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch import nn

from parity.core.clock import Clock, Time
from parity.doctor.drive import TIMED, WARM, Drive, Files, building_errors, outcome, schedule, steps, users_program
from parity.doctor.evidence import Evidence
from parity.runtime.drive import Program, plain_run
from parity.runtime.job import DoctorJob
from torch_impl.doctor.observer import Observer, timed
from torch_impl.instruments import devices, source, structure, values
from torch_impl.instruments.build import Building
from torch_impl.instruments.origins import tensors
from torch_impl.instruments.pretended import on_cpu, pretend
from torch_impl.instruments.ranks import Collectives
from torch_impl.record import run as built_in

Inputs = dict[str, torch.Tensor]


def examine(job: DoctorJob) -> None:
    """Write what this rank observed. Raises UsageError, and any exception that the program raises while it is built."""
    rank = devices.rank()
    files = Files(Path(job.folder), rank.number)
    files.answer_where()
    torch.manual_seed(rank.number)  # ranks that are to start alike must see to it themselves, as under torchrun
    with _machine(job) as evidence:
        with Building() as building, building_errors(source.line_of):
            program = _program(job, evidence)
        files.built()
        observer = Observer(program.model, building, evidence.devices)
        clock = Clock(partial(_wait, job))
        contexts = schedule(
            job,
            observed=partial(_observed, evidence, observer, files),
            plain=contextlib.nullcontext,
            timed=lambda _: timed(clock, program.model),
            profiled=lambda _: _profiled(evidence, Path(job.profile)),
        )
        sizes = values.root_mean_squares(program.model)
        evidence.later = outcome(Drive(program, contexts, files, rank.of), source.line_of)
        evidence.visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        evidence.kept = observer.training.graphs.kept()
        evidence.still = observer.training.unused.still()
        evidence.changed = values.root_mean_squares(program.model) != sizes
        evidence.modules = building.modules(program.model)
        evidence.weights = building.weights(program.model, list(building.optimizers))
        evidence.moves = building.moves
        evidence.frozen_by_train = structure.frozen_by_train(program.model)
        evidence.times += clock.result(evidence.physical[0])
    files.write(evidence)
    if job.timed and job.virtual and rank.of == 1:
        evidence.times = _on_cpu(job) or evidence.times
        files.write(evidence)


def _program(job: DoctorJob, evidence: Evidence) -> Program:
    if job.case:
        return built_in.program(plain_run(job.case, steps(job), devices.rank(), job.folder), evidence.devices)
    program = users_program(job, "torch", (nn.Module,), _step, partial(_batches, job))
    weights = [*program.model.parameters(), *program.model.buffers()]
    # Unless the program has placed a part of it.
    evidence.moved = not job.step and all(weight.device.type == "cpu" for weight in weights)
    if evidence.moved:
        program.model.to(evidence.devices[evidence.rank % len(evidence.devices)])
    return program


def _on_cpu(job: DoctorJob) -> list[Time]:
    """Return the times when every device is the CPU itself; none if the program fails that way."""
    # Virtual devices slow down each op, so times measured on them would mean nothing.
    clock = Clock(lambda: None)
    with contextlib.suppress(Exception), on_cpu(job.devices):
        program = _program(job, Evidence(side="torch", devices=[f"cuda:{i}" for i in range(job.devices)]))
        contexts = [contextlib.nullcontext] * WARM + [lambda _: timed(clock, program.model)] * TIMED
        files = Files(Path(job.folder), 1)  # the file of another rank: the parent process sees that this goes on
        Drive(program, contexts, files, 1).run()
    return clock.result("CPU")


def _wait(job: DoctorJob) -> None:
    for number in range(0 if job.virtual else job.devices):
        torch.cuda.synchronize(number)


@contextmanager
def _machine(job: DoctorJob) -> Iterator[Evidence]:
    """Provide the job's devices and process group. Yields evidence in which only the devices are filled in."""
    rank = devices.rank()
    evidence = Evidence(side="torch", rank=rank.number, ranks=rank.of, asked=job.asked)
    evidence.own_step = bool(job.case or job.step)
    evidence.devices = [f"cuda:{i}" for i in range(job.devices)]
    with contextlib.ExitStack() as stack:
        if job.virtual and job.case and job.case.distribution.has_dtensors:
            # A tensor cannot be a DTensor and a VirtualTensor at once, so these ranks use the plain CPU.
            evidence.devices, evidence.physical = ["cpu"] * job.devices, ["CPU (process)"] * job.devices
        elif job.virtual:
            evidence.physical = ["CPU (virtual)"] * job.devices
            evidence.not_pretended = stack.enter_context(pretend(job.devices))
        else:
            evidence.physical = [torch.cuda.get_device_name(i) for i in range(job.devices)]
        if rank.of > 1:
            devices.join(torch.device("cpu") if job.virtual else torch.device("cuda", rank.number))
            # The group exists now; the program's own call would fail as the second one.
            stack.enter_context(mock.patch.object(dist, "init_process_group", lambda *args, **kwargs: None))
        elif not job.case:
            stack.enter_context(mock.patch.dict(os.environ, _alone()))
        yield evidence


def _alone() -> dict[str, str]:
    """Return the variables that torchrun sets for a single process."""
    # With them a program written for several ranks can create its process group.
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    numbers = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"}
    return {**numbers, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}


@contextmanager
def _observed(evidence: Evidence, observer: Observer, files: Files, batch: Any) -> Iterator[None]:
    start = time.perf_counter()
    with Collectives(files), observer.step(named(batch)) as step:
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


def named(batch: Any) -> dict[str, torch.Tensor]:
    """Return the tensors of a step's batch by name; those of a built-in case's micro-batches by number."""
    return batch if isinstance(batch, dict) else {str(number): tensor for number, tensor in enumerate(tensors(batch))}


def _batches(job: DoctorJob, model: nn.Module) -> Iterator[Inputs]:
    """Yield batches as a data loader does: on the host, new ones for each step."""
    # Under DistributedDataParallel each rank has batches of its own; other programs may split a batch among the ranks.
    own, of = devices.rank() if structure.distributed(model).startswith("ddp") else (0, 1)
    for number in range(steps(job)):
        yield {given.name: torch.from_numpy(given.values(number * of + own)) for given in job.inputs}


def _step(model: nn.Module, inputs: Inputs) -> None:
    """Make a default step: move the inputs, forward, sum of the outputs, backward. Used if the user gives no step."""
    model.zero_grad()
    weights = itertools.chain(model.parameters(), model.buffers())
    device = next((tensor.device for tensor in weights), torch.device("cpu"))
    moved = {name: tensor.to(device) for name, tensor in inputs.items()}
    try:
        inspect.signature(model.forward).bind(**moved)
    except TypeError:
        outputs = model(*moved.values())
    else:
        outputs = model(**moved)
    floats = [tensor for tensor in tensors(outputs) if tensor.requires_grad]
    if floats:
        torch.stack([tensor.sum().to(floats[0].device) for tensor in floats]).sum().backward()
