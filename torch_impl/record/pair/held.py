"""What a run holds as the other side has it, where a pair accepts the difference: it hides nothing behind it then."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import nn
from torch.nn.utils import clip_grad
from torch.optim import Adam, Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from parity.config.pair import ADDED_TO_NORM
from parity.core.patches import Original, applied, around
from torch_impl.instruments import script_calls


@contextmanager
def epsilons(is_held: bool) -> Iterator[set[Optimizer]]:
    """Let Adam add its epsilon before the bias correction if `is_held`; yield those optimizers that do.

    Keras divides by (sqrt(v) + epsilon) / sqrt(1 - beta2^t), PyTorch by sqrt(v) / sqrt(1 - beta2^t) + epsilon
    (keras/src/optimizers/adam.py, torch/optim/adam.py).
    """
    own: dict[int, float] = {}
    reached: set[Optimizer] = set()

    def before(optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        is_moved = isinstance(optimizer, Adam) and script_calls.closure_of(args, kwargs) is None
        for group in (each for each in optimizer.param_groups if is_moved and id(each) not in own):
            done = [float(optimizer.state[each]["step"]) for each in group["params"] if optimizer.state.get(each)]
            reached.add(optimizer)
            own[id(group)] = group["eps"]
            group["eps"] /= math.sqrt(1 - group["betas"][1] ** (max(done, default=0.0) + 1))

    def after(optimizer: Optimizer, *_: Any) -> None:
        for group in optimizer.param_groups if optimizer in reached else ():
            group["eps"] = own.pop(id(group))

    hooks = [register_optimizer_step_pre_hook(before), register_optimizer_step_post_hook(after)] if is_held else []
    with applied(hooks):
        yield reached


@contextmanager
def norms(is_held: bool) -> Iterator[list[float]]:
    """Let gradients be clipped without ADDED_TO_NORM in the norm if `is_held`; yield the norms that were clipped."""
    clipped: list[float] = []

    def scale(clip: Original, parameters: Any, most: float, norm: torch.Tensor, *further: Any) -> None:
        clipped.extend([float(norm)] if norm > most else [])
        clip(parameters, most, norm - ADDED_TO_NORM, *further)

    with around(clip_grad, "_clip_grads_with_norm_", scale) if is_held else nullcontext():
        yield clipped


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
