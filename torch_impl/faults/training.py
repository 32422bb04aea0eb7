"""Faults of training: other samples, losses, optimizers, schedules and clipping."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.optim import SGD, Adam, Optimizer
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, DistributedSampler

from parity.selftest.mutate import Patches, constant, replaced, wrapped
from torch_impl import losses, optimizers
from torch_impl.record import data
from torch_impl.strategies import all_reduce

Batch = tuple[tuple[torch.Tensor, ...], torch.Tensor]
Loss = Callable[..., torch.Tensor]
Make = Callable[..., Optimizer]


# Data.


def _channels_reversed(tensors: Callable[..., Batch], *args: Any) -> Batch:
    """Reverse the order of the color channels."""
    (images,), target = tensors(*args)
    return (images.flip(1),), target


def _targets_of_others(tensors: Callable[..., Batch], *args: Any) -> Batch:
    """Give each sample the target of the previous one."""
    inputs, target = tensors(*args)
    return inputs, target.roll(1, 0)


# Losses.


def _summed(loss: Loss, outputs: torch.Tensor, target: torch.Tensor, reduction: str = "mean") -> torch.Tensor:
    return loss(outputs, target, "sum")


def _sum_of_each_sample(
    loss: Loss, outputs: torch.Tensor, target: torch.Tensor, reduction: str = "mean"
) -> torch.Tensor:
    return loss(outputs, target, "sum") / len(outputs)


def _broadcast(outputs: torch.Tensor, target: torch.Tensor, reduction: str = "mean") -> torch.Tensor:
    """Compare outputs (N, 1) with a target (N,), which broadcasts to (N, N)."""
    return (outputs - target.squeeze(-1)).square().mean()


def _absolute(outputs: torch.Tensor, target: torch.Tensor, reduction: str = "mean") -> torch.Tensor:
    return functional.l1_loss(outputs, target)


def _softmax_before(loss: Loss, outputs: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    return loss(outputs.softmax(-1), *args, **kwargs)


def _with(**options: Any) -> Patches:
    """Call torch's cross_entropy with further options."""
    return wrapped(functional, "cross_entropy", lambda loss, *args, **kwargs: loss(*args, **kwargs, **options))


# Optimizers, schedules and clipping.


def _biases_do_not_decay(make: Make, config: Any, parameters: list[nn.Parameter]) -> Optimizer:
    optimizer = make(config, [parameter for parameter in parameters if parameter.dim() > 1])
    biases = [parameter for parameter in parameters if parameter.dim() == 1]
    optimizer.add_param_group({"params": biases, "weight_decay": 0.0})
    return optimizer


def _first_is_frozen(make: Make, config: Any, parameters: list[nn.Parameter]) -> Optimizer:
    optimizer = make(config, parameters)
    start = parameters[0].detach().clone()
    optimizer.register_step_post_hook(lambda *_: parameters[0].data.copy_(start))
    return optimizer


def _one_step_early(*args: Any) -> StepLR:
    schedule = StepLR(*args)
    schedule.step()
    return schedule


def _norm_of_each(clip: Callable[..., None], parameters: Iterable[nn.Parameter], limit: float) -> None:
    for parameter in parameters:
        clip([parameter], limit)


FAULTS: dict[str, Patches] = {
    "sampler.epoch": replaced(DistributedSampler, "set_epoch", lambda sampler, epoch: None),
    "sampler.shuffle": constant(DistributedSampler, "shuffle", False),
    "sampler.drop_last": replaced(all_reduce, "DataLoader", partial(DataLoader, drop_last=True)),
    "input.channels": wrapped(data, "tensors", _channels_reversed),
    "target.order": wrapped(data, "tensors", _targets_of_others),
    "loss.sum": wrapped(losses, "cross_entropy", _summed),
    "loss.kind": replaced(losses, "mse", _absolute),
    "mse.reduction": wrapped(losses, "mse", _sum_of_each_sample),
    "mse.broadcast": replaced(losses, "mse", _broadcast),
    "cross_entropy.double_softmax": wrapped(losses, "cross_entropy", _softmax_before),
    "cross_entropy.ignored": _with(ignore_index=0),
    "cross_entropy.label_smoothing": _with(label_smoothing=0.1),
    "sgd.learning_rate": constant(SGD, "lr", 0.001),
    "sgd.dampening": constant(SGD, "dampening", 0.9),
    "sgd.nesterov": constant(SGD, "nesterov", False),
    "schedule.offset": replaced(optimizers, "StepLR", _one_step_early),
    "weight_decay.form": replaced(optimizers, "AdamW", Adam),
    "weight_decay.excludes_bias": wrapped(optimizers, "_optimizer", _biases_do_not_decay),
    "adam.epsilon": constant(Adam, "eps", 1e-7),
    "adam.beta1": constant(Adam, "betas", (0.8, 0.999)),
    "adam.amsgrad": constant(Adam, "amsgrad", True),
    "update.frozen": wrapped(optimizers, "_optimizer", _first_is_frozen),
    "clip.scope": wrapped(optimizers, "clip_by_global_norm", _norm_of_each),
    "clip.forgotten": replaced(optimizers, "clip_by_global_norm", lambda parameters, limit: None),
    "clip.value": replaced(optimizers, "clip_by_global_norm", nn.utils.clip_grad_value_),
}
