"""Times the parts of a step: reports to a clock when each begins and ends, and how long the step communicates."""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest import mock

import torch
from torch import nn
from torch.autograd.profiler_util import FunctionEvent
from torch.nn.modules import module as modules
from torch.optim import optimizer as optimizers
from torch.profiler import profile, supported_activities

from parity.core.clock import Clock, covered
from parity.core.patches import applied

# As ProcessGroupGloo.cpp and NCCL's kernels name them, and CUPTI the copies between GPUs.
KINDS = ("gloo:", "nccl", "Memcpy PtoP")
MICRO = 1e-6
COPIES = ("to", "cuda", "cpu", "item", "numpy", "tolist")  # methods of a tensor


@contextmanager
def timed(clock: Clock, model: nn.Module) -> Iterator[None]:
    """Time one step, which runs within the block."""
    parts = [(torch.autograd, "backward", "backward"), *((torch.Tensor, name, "copies") for name in COPIES)]
    patches = [mock.patch.object(owner, name, clock.timed(part, getattr(owner, name))) for owner, name, part in parts]
    hooks = [
        modules.register_module_forward_pre_hook(functools.partial(_on_call, clock.begin, model)),
        modules.register_module_forward_hook(functools.partial(_on_call, clock.end, model), always_call=True),
        optimizers.register_optimizer_step_pre_hook(lambda *_: clock.begin("update")),
        optimizers.register_optimizer_step_post_hook(lambda *_: clock.end("update")),
    ]
    with applied([*patches, *hooks]), clock.step():
        yield


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
