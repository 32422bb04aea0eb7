"""What PyTorch's runs hold as Keras has it, where a pair accepts the difference: then all that follows is equal."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.optim import Adam, Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from parity.core.patches import Original, around


@contextmanager
def epsilons(is_held: bool) -> Iterator[set[Optimizer]]:
    """Let Adam add its epsilon before the bias correction if `is_held`; yield those optimizers that do.

    Keras divides by (sqrt(v) + epsilon) / sqrt(1 - beta2^t), PyTorch by sqrt(v) / sqrt(1 - beta2^t) + epsilon
    (keras/src/optimizers/adam.py, torch/optim/adam.py).
    """
    own: dict[int, float] = {}
    reached: set[Optimizer] = set()

    def before(optimizer: Optimizer, *_: Any) -> None:
        for group in optimizer.param_groups if isinstance(optimizer, Adam) else ():
            done = [float(optimizer.state[each]["step"]) for each in group["params"] if optimizer.state.get(each)]
            reached.add(optimizer)
            own[id(group)] = group["eps"]
            group["eps"] /= math.sqrt(1 - group["betas"][1] ** (max(done, default=0.0) + 1))

    def after(optimizer: Optimizer, *_: Any) -> None:
        for group in optimizer.param_groups if optimizer in reached else ():
            group["eps"] = own.pop(id(group))

    hooks = [register_optimizer_step_pre_hook(before), register_optimizer_step_post_hook(after)] if is_held else []
    try:
        yield reached
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def running_variances(model: nn.Module, is_held: Callable[[str], bool]) -> Iterator[set[str]]:
    """Give modules, by their paths, Keras's biased running variance; yield those to which it was given.

    `torch.batch_norm` stores (1 - momentum) * old + momentum * unbiased, and unbiased = biased * n / (n - 1).
    """
    buffers = ((path.rpartition("."), buffer) for path, buffer in model.named_buffers())
    modules = {id(buffer): module for (module, _, name), buffer in buffers if name == "running_var" and is_held(module)}
    reached: set[str] = set()

    def on_batch_norm(
        batch_norm: Original, x: Any, weight: Any, bias: Any, mean: Any, variance: Any, training: bool,
        momentum: float, *further: Any,
    ) -> Any:  # fmt: skip
        module = modules.get(id(variance)) if training else None
        kept = (1 - momentum) * variance.data if module is not None else 0.0
        result = batch_norm(x, weight, bias, mean, variance, training, momentum, *further)
        if module is not None:
            reached.add(module)
            variance.data -= (variance.data - kept) * x.shape[1] / x.numel()
        return result

    with around(torch, "batch_norm", on_batch_norm):
        yield reached
