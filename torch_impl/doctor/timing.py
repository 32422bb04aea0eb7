"""Times the parts of a step: reports to a clock when each begins and ends."""

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from unittest import mock

import torch
from torch import nn
from torch.nn.modules import module as modules
from torch.optim import optimizer as optimizers

from parity.doctor.clock import Clock

COPIES = ("to", "cuda", "cpu", "item", "numpy", "tolist")  # methods of a tensor


@contextmanager
def timed(clock: Clock, model: nn.Module) -> Iterator[None]:
    """Time one step, which runs within the block."""
    with ExitStack() as stack:
        backward = clock.timed("backward", torch.autograd.backward)
        stack.enter_context(mock.patch.object(torch.autograd, "backward", backward))
        for name in COPIES:
            method = clock.timed("copies", getattr(torch.Tensor, name))
            stack.enter_context(mock.patch.object(torch.Tensor, name, method))
        handles = [
            modules.register_module_forward_pre_hook(functools.partial(_on_call, clock.begin, model)),
            modules.register_module_forward_hook(functools.partial(_on_call, clock.end, model), always_call=True),
            optimizers.register_optimizer_step_pre_hook(lambda *_: clock.begin("update")),
            optimizers.register_optimizer_step_post_hook(lambda *_: clock.end("update")),
        ]
        for handle in handles:
            stack.callback(handle.remove)
        stack.enter_context(clock.step())
        yield


def _on_call(tell: Callable[[str], None], model: nn.Module, module: nn.Module, *_: object) -> None:
    if module is model:
        tell("forward")
