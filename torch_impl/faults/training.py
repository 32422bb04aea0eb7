"""Faults of training: other samples, losses, optimizers, schedules and clipping."""

import functools
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.optim import SGD, Adam, Optimizer
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, DistributedSampler

from parity.selftest.mutate import Patches, constant, replaced
from torch_impl import losses, optimizers
from torch_impl.record import data
from torch_impl.strategies import all_reduce

Tensors = Callable[..., tuple[tuple[torch.Tensor, ...], torch.Tensor]]
Loss = Callable[..., torch.Tensor]
Make = Callable[..., Optimizer]


# Data.


def _same_epoch(set_epoch: Callable[..., None]) -> Callable[..., None]:
    return lambda self, epoch: None


def _full_batches_only(loader: type[DataLoader]) -> Callable[..., DataLoader]:
    return functools.partial(loader, drop_last=True)


def _channels_reversed(tensors: Tensors) -> Tensors:
    """Reverse the order of the color channels."""

    def changed(*args: Any) -> tuple[tuple[torch.Tensor, ...], torch.Tensor]:
        (images,), target = tensors(*args)
        return (images.flip(1),), target

    return changed


def _targets_of_others(tensors: Tensors) -> Tensors:
    """Give each sample the target of the previous one."""

    def changed(*args: Any) -> tuple[tuple[torch.Tensor, ...], torch.Tensor]:
        inputs, target = tensors(*args)
        return inputs, target.roll(1, 0)

    return changed


# Losses.


def _summed(loss: Loss) -> Loss:
    return lambda outputs, target, reduction="mean": loss(outputs, target, "sum")


def _sum_of_each_sample(loss: Loss) -> Loss:
    return lambda outputs, target, reduction="mean": loss(outputs, target, "sum") / len(outputs)


def _broadcast(loss: Loss) -> Loss:
    """Compare outputs (N, 1) with a target (N,), which broadcasts to (N, N)."""
    return lambda outputs, target, reduction="mean": (outputs - target.squeeze(-1)).square().mean()


def _absolute(loss: Loss) -> Loss:
    return lambda outputs, target, reduction="mean": functional.l1_loss(outputs, target)


def _softmax_before(loss: Loss) -> Loss:
    return lambda outputs, target, reduction="mean": loss(outputs.softmax(-1), target, reduction)


def _with(**options: Any) -> Patches:
    """Call torch's cross_entropy with further options."""

    def change(cross_entropy: Loss) -> Loss:
        return lambda outputs, target, reduction="mean": cross_entropy(outputs, target, reduction=reduction, **options)

    return replaced(functional, "cross_entropy", change)


# Optimizers, schedules and clipping.


def _biases_do_not_decay(make: Make) -> Make:
    def changed(config: Any, parameters: list[nn.Parameter]) -> Optimizer:
        optimizer = make(config, [parameter for parameter in parameters if parameter.dim() > 1])
        biases = [parameter for parameter in parameters if parameter.dim() == 1]
        optimizer.add_param_group({"params": biases, "weight_decay": 0.0})
        return optimizer

    return changed


def _first_is_frozen(make: Make) -> Make:
    def changed(config: Any, parameters: list[nn.Parameter]) -> Optimizer:
        optimizer = make(config, parameters)
        start = parameters[0].detach().clone()
        optimizer.register_step_post_hook(lambda *_: parameters[0].data.copy_(start))
        return optimizer

    return changed


def _one_step_early(make: Callable[..., StepLR]) -> Callable[..., StepLR]:
    def changed(*args: Any) -> StepLR:
        schedule = make(*args)
        schedule.step()
        return schedule

    return changed


def _each_value(clip: Callable[..., None]) -> Callable[..., None]:
    return lambda parameters, limit: nn.utils.clip_grad_value_(parameters, limit)


def _not_at_all(clip: Callable[..., None]) -> Callable[..., None]:
    return lambda parameters, limit: None


def _norm_of_each(clip: Callable[..., None]) -> Callable[..., None]:
    def changed(parameters: Iterable[nn.Parameter], limit: float) -> None:
        for parameter in parameters:
            clip([parameter], limit)

    return changed


FAULTS: dict[str, Patches] = {
    "sampler.epoch": replaced(DistributedSampler, "set_epoch", _same_epoch),
    "sampler.shuffle": constant(DistributedSampler, "shuffle", False),
    "sampler.drop_last": replaced(all_reduce, "DataLoader", _full_batches_only),
    "input.channels": replaced(data, "tensors", _channels_reversed),
    "target.order": replaced(data, "tensors", _targets_of_others),
    "loss.sum": replaced(losses, "cross_entropy", _summed),
    "loss.kind": replaced(losses, "mse", _absolute),
    "mse.reduction": replaced(losses, "mse", _sum_of_each_sample),
    "mse.broadcast": replaced(losses, "mse", _broadcast),
    "cross_entropy.double_softmax": replaced(losses, "cross_entropy", _softmax_before),
    "cross_entropy.ignored": _with(ignore_index=0),
    "cross_entropy.label_smoothing": _with(label_smoothing=0.1),
    "sgd.learning_rate": constant(SGD, "lr", 0.001),
    "sgd.dampening": constant(SGD, "dampening", 0.9),
    "sgd.nesterov": constant(SGD, "nesterov", False),
    "schedule.offset": replaced(optimizers, "StepLR", _one_step_early),
    "weight_decay.form": replaced(optimizers, "AdamW", lambda adamw: Adam),
    "weight_decay.excludes_bias": replaced(optimizers, "_optimizer", _biases_do_not_decay),
    "adam.epsilon": constant(Adam, "eps", 1e-7),
    "adam.beta1": constant(Adam, "betas", (0.8, 0.999)),
    "adam.amsgrad": constant(Adam, "amsgrad", True),
    "update.frozen": replaced(optimizers, "_optimizer", _first_is_frozen),
    "clip.scope": replaced(optimizers, "clip_by_global_norm", _norm_of_each),
    "clip.forgotten": replaced(optimizers, "clip_by_global_norm", _not_at_all),
    "clip.value": replaced(optimizers, "clip_by_global_norm", _each_value),
}
