"""The doctor's part on this side: a program is built, two steps of it are observed, and some more are timed."""

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from parity.checkup.clock import Clock
from parity.checkup.drive import OBSERVED, TIMED, WARM, Drive, Program, steps
from parity.checkup.evidence import Evidence
from parity.checkup.files import Files
from parity.checkup.program import load
from parity.errors import UsageError
from parity.runtime.job import Examination
from torch_impl.harness import devices
from torch_impl.harness.checkup import built_in
from torch_impl.harness.checkup.build import Building
from torch_impl.harness.checkup.collectives import Collectives
from torch_impl.harness.checkup.observer import Observer
from torch_impl.harness.checkup.timing import timed
from torch_impl.harness.pretend import pretend

Inputs = dict[str, torch.Tensor]
Step = Callable[[], AbstractContextManager[None]]


def examine(job: Examination) -> None:
    """Write what this rank saw. Raises UsageError, and what the program raised while it was built."""
    rank = devices.rank()
    files = Files(Path(job.folder), rank.number)
    files.answer_where()
    torch.manual_seed(0)
    with _machine(job) as evidence:
        with Building() as building:
            program = built_in.program(job, evidence.devices) if job.case else _program(job)
            evidence.moved = not (job.case or job.step) and _move(program.model, evidence.devices[0])
        observer = Observer(program.model, building, evidence.devices)
        clock = Clock(torch.cuda.synchronize if not job.virtual else lambda: None)
        time = functools.partial(timed, clock, program.model)
        context = functools.partial(_context, job, evidence, observer, time, files)
        Drive(program, context, files, rank.of, steps(job)).run()
        evidence.modules = building.modules(program.model)
        evidence.weights = building.weights(program.model, observer.optimizers)
        evidence.moves = building.moves
        evidence.times += clock.result(evidence.physical[0])
    files.write(evidence)


@contextmanager
def _machine(job: Examination) -> Iterator[Evidence]:
    """The devices of the job, real or not, and the process group if there are ranks; evidence of them alone."""
    rank = devices.rank()
    evidence = Evidence(side="torch", rank=rank.number, ranks=rank.of, own_step=bool(job.case or job.step))
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
    if number < OBSERVED + WARM:
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


def _program(job: Examination) -> Program:
    """The user's. Raises UsageError."""
    build = load("--torch", job.build)
    step = load("--step", job.step) if job.step else _step
    model = build()
    if not isinstance(model, nn.Module):
        raise UsageError(f"--torch={job.build}: expected a torch.nn.Module, received {type(model).__name__}")

    def train(batches: Iterator[Inputs], on_step: Callable[[], None]) -> None:
        for inputs in batches:
            step(model, inputs)
            on_step()

    return Program(model, _batches(job), train)


def _batches(job: Examination) -> Iterator[Inputs]:
    """As a data loader gives them: on the host, new ones for each step."""
    for number in range(steps(job)):
        yield {given.name: torch.from_numpy(given.values(number)) for given in job.inputs}


def _move(model: nn.Module, device: str) -> bool:
    """To the device, unless the user's program has put a part of it on one; whether it was moved."""
    tensors = [*model.parameters(), *model.buffers()]
    if any(tensor.device.type != "cpu" for tensor in tensors):
        return False
    model.to(device)
    return True


def _step(model: nn.Module, inputs: Inputs) -> None:
    """Where no step is given: the inputs moved, forward, the sum of the outputs, backward."""
    model.zero_grad()
    device = next((tensor.device for tensor in model.parameters()), torch.device("cpu"))
    moved = {name: tensor.to(device) for name, tensor in inputs.items()}
    outputs = model(**moved) if _takes(model, moved) else model(*moved.values())
    floats = [leaf for leaf in tree_leaves(outputs) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    if floats:
        home = floats[0].device
        torch.stack([leaf.sum().to(home) for leaf in floats]).sum().backward()


def _takes(model: nn.Module, inputs: Inputs) -> bool:
    """Whether the model's arguments have the names of the inputs."""
    try:
        inspect.signature(model.forward).bind(**inputs)
    except TypeError:
        return False
    return True
