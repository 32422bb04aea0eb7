"""The optimizers and the learning-rate schedule: torch's own."""

from collections.abc import Iterable

import torch
from torch import nn
from torch.optim import SGD, Adam, AdamW, Optimizer
from torch.optim.lr_scheduler import LRScheduler, StepLR

from parity.config import schema


def build(case: schema.Case, parameters: Iterable[nn.Parameter]) -> tuple[Optimizer, LRScheduler | None]:
    """The optimizer that a case describes, and the schedule of its learning rate, if any."""
    optimizer = _optimizer(case.optimizer, parameters)
    if case.schedule is None:
        return optimizer, None
    return optimizer, StepLR(optimizer, case.schedule.every, case.schedule.factor)


def clip_by_global_norm(parameters: Iterable[nn.Parameter], max_norm: float) -> torch.Tensor:
    """Scale all gradients, in place, so that their common L2 norm is at most `max_norm`."""
    return nn.utils.clip_grad_norm_(parameters, max_norm)


def _optimizer(config: schema.Optimizer, parameters: Iterable[nn.Parameter]) -> Optimizer:
    match config:
        case schema.SGD():
            return SGD(
                parameters,
                lr=config.learning_rate,
                momentum=config.momentum,
                nesterov=config.nesterov,
                weight_decay=config.weight_decay,
            )
        case schema.Adam():
            kind = AdamW if isinstance(config, schema.AdamW) else Adam
            return kind(
                parameters,
                lr=config.learning_rate,
                betas=(config.beta1, config.beta2),
                eps=config.epsilon,
                weight_decay=config.weight_decay,
            )
