"""Observe a step of training as the program runs it, without changing any result, and time its parts."""

import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from unittest import mock

import torch
from torch import nn
from torch.autograd.profiler_util import FunctionEvent
from torch.nn.modules import module as modules
from torch.optim import optimizer as optimizers
from torch.profiler import profile, supported_activities

from parity.core.clock import Clock, covered
from parity.core.patches import applied
from parity.doctor.evidence import Place, Step
from torch_impl.instruments import source
from torch_impl.instruments.build import Building
from torch_impl.instruments.calls import Calls
from torch_impl.instruments.finite import AtenObserver
from torch_impl.instruments.ops import Cuts, Ops
from torch_impl.instruments.origins import Loaders
from torch_impl.instruments.training import Training


class Observer:
    """Observes a model built within `building`, and its training; `devices`: their names in the program ("cuda:0")."""

    def __init__(self, model: nn.Module, building: Building, devices: list[str]):
        self.building = building
        self.origins = building.origins(model)
        self.calls = Calls(model, building, self.origins)
        cuts = Cuts(self.calls)
        self.training = Training(model, building, self.calls, self.origins, cuts)
        self.ops = Ops(self.calls, self.origins, devices, cuts, self.training.graphs, self.training.replicas)
        self.loaders = Loaders(self.origins)
        self.below = AtenObserver(self.calls, self.origins)

    @contextmanager
    def step(self, inputs: dict[str, torch.Tensor]) -> Iterator[Step]:
        """Run a step within the block and fill in its evidence; an exception becomes its failure, and ends there."""
        step = Step()
        for name, tensor in inputs.items():
            self.origins.note(tensor, f"input {name}")
        self.ops.begin(step, inputs)
        with (
            self.loaders.watched(step),
            self.ops.copies.watched(),
            self.training.watched(step, self.below.reached),
            self.calls.watched(step, self.ops.losses.fed, self.below.reached),
        ):
            try:
                with self.below, self.ops:
                    yield step
            except Exception as error:
                self.calls.failed(error, "", [], Place(phase=self.calls.phase))
                step.failure = self.calls.failing[1]
                step.failure.place.source = source.line_of(error.__traceback__)
        self.training.finish()
        self.below.finish()
        self.calls.failing = None  # it would keep the frames of the step alive


# As ProcessGroupGloo.cpp and NCCL's kernels name them, and CUPTI the copies between GPUs.
KINDS = ("gloo:", "nccl", "Memcpy PtoP")
MICRO = 1e-6
COPIES = ("to", "cuda", "cpu", "item", "numpy", "tolist")  # methods of a tensor


def timed(clock: Clock, model: nn.Module) -> AbstractContextManager[None]:
    """Return a context that times one step."""
    parts = [(torch.autograd, "backward", "backward"), *((torch.Tensor, name, "copies") for name in COPIES)]
    patches = [mock.patch.object(owner, name, clock.timed(part, getattr(owner, name))) for owner, name, part in parts]
    hooks = [
        modules.register_module_forward_pre_hook(functools.partial(_on_call, clock.begin, model)),
        modules.register_module_forward_hook(functools.partial(_on_call, clock.end, model), always_call=True),
        optimizers.register_optimizer_step_pre_hook(lambda *_: clock.begin("update")),
        optimizers.register_optimizer_step_post_hook(lambda *_: clock.end("update")),
    ]
    return applied([*patches, *hooks, clock.step()])


def _on_call(tell: Callable[[str], None], model: nn.Module, module: nn.Module, *_: object) -> None:
    if module is model:
        tell("forward")


@contextmanager
def timed_communication(clock: Clock) -> Iterator[None]:
    """Add the time of one step, which runs within the block, in which something is sent or waited for.

    It is that of the spans which PyTorch's profiler notes of collectives, messages and copies. Other parts may run at
    the same time: DistributedDataParallel reduces gradients during the backward pass.
    """
    with profile(activities=supported_activities()) as profiler:
        yield
    events: list[FunctionEvent] = list(profiler.events() or [])
    spans = [(event.time_range.start, event.time_range.end) for event in events if event.name.startswith(KINDS)]
    if torch.distributed.is_initialized() or spans:
        clock.add("communication", covered(spans) * MICRO)
