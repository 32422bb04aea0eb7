"""Losses and optimizers of the soundness table in torch: `torch_training:momentum` is that of optimizers_table.py."""

import functools
import itertools
from collections.abc import Callable, Iterable
from typing import Any

import torch
from optimizers_table import OPTIMIZERS, at
from torch import Tensor, nn
from torch.nn import functional
from torch.optim.lr_scheduler import StepLR
from torch_steps import unseeded


def __getattr__(name: str) -> Callable[..., Any]:
    if name not in OPTIMIZERS:
        raise AttributeError(name)
    return functools.partial(make, OPTIMIZERS[name])


def make(config: dict[str, Any], parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    parameters, config = list(parameters), at(config, torch.get_default_dtype() == torch.float64)
    optimizer = _plain(config, parameters)
    if "noise" in config:
        noisy, steps = parameters[-config.get("noise_on", 0) :], itertools.count()
        first = config.get("noise_from", 0)
        optimizer.register_step_pre_hook(lambda *_: _disturb(noisy, config["noise"] * (next(steps) >= first)))
    if "clip" in config:
        optimizer.register_step_pre_hook(lambda *_: _clip(parameters, config["clip"]))
    if "every" in config:
        schedule = StepLR(optimizer, config["every"], config["factor"])
        optimizer.register_step_post_hook(lambda *_: schedule.step())
    return optimizer


def _plain(config: dict[str, Any], parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    if config["kind"] == "sgd":
        momentum, nesterov = config.get("momentum", 0), config.get("nesterov", False)
        decay = config.get("decay", 0)
        return torch.optim.SGD(parameters, config["rate"], momentum, weight_decay=decay, nesterov=nesterov)
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[config["kind"]]
    return kind(parameters, config["rate"], config["betas"], config["eps"], config["decay"])


def _clip(parameters: list[nn.Parameter], limit: float) -> None:
    nn.utils.clip_grad_norm_(parameters, limit)


def _disturb(parameters: list[nn.Parameter], by: float) -> None:
    for parameter in parameters:
        if parameter.grad is not None:
            parameter.grad += by * unseeded(parameter.grad)


def mean_square(outputs: Tensor, target: Tensor) -> Tensor:
    return (outputs - target).square().mean()


def per_sample(outputs: Tensor, target: Tensor) -> Tensor:
    """The mean over samples of sums over features."""
    return (outputs - target).square().sum(-1).mean()


def absolute(outputs: Tensor, target: Tensor) -> Tensor:
    return (outputs - target).abs().mean()


def huber(outputs: Tensor, target: Tensor) -> Tensor:
    return functional.huber_loss(outputs, target)


def logits(outputs: Tensor, target: Tensor) -> Tensor:
    return functional.cross_entropy(outputs, target)


def smoothed(outputs: Tensor, target: Tensor) -> Tensor:
    return functional.cross_entropy(outputs, target, label_smoothing=0.1)


def weighted(outputs: Tensor, target: Tensor) -> Tensor:
    weights = torch.arange(1, outputs.shape[-1] + 1, dtype=outputs.dtype)
    return functional.cross_entropy(outputs, target, weight=weights)


def ignoring(outputs: Tensor, target: Tensor) -> Tensor:
    """Class 0 does not count."""
    return functional.cross_entropy(outputs, target, ignore_index=0)


def binary(outputs: Tensor, target: Tensor) -> Tensor:
    return functional.binary_cross_entropy_with_logits(outputs, (target > 0).to(outputs.dtype))


def infinite(outputs: Tensor, target: Tensor) -> Tensor:
    """Of the logarithm of nothing: infinite, its gradient finite."""
    return mean_square(outputs, target) + torch.log(torch.zeros((), dtype=outputs.dtype))


def nan(outputs: Tensor, target: Tensor) -> Tensor:
    """Not a number, its gradient neither."""
    return mean_square(outputs, target) * torch.sqrt(outputs.detach().min() * 0 - 1)
