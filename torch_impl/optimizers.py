"""The optimizers: torch.optim's, with gradient clipping and learning-rate schedule attached as hooks of `step`."""

from collections.abc import Iterable

from torch import nn
from torch.optim import SGD, Adam, AdamW, Optimizer
from torch.optim.lr_scheduler import StepLR

from parity.config import schema
from torch_impl.instruments.structure import is_dtensor


def build(case: schema.Case, parameters: Iterable[nn.Parameter]) -> Optimizer:
    """Build the optimizer of a case; its `step` clips the gradients first and advances the schedule last."""
    parameters = list(parameters)
    optimizer = _optimizer(case.optimizer, parameters)
    if case.clip_norm is not None:
        optimizer.register_step_pre_hook(lambda *_: clip_by_global_norm(parameters, case.clip_norm))
    if case.schedule is not None:
        schedule = StepLR(optimizer, case.schedule.every, case.schedule.factor)
        optimizer.register_step_post_hook(lambda *_: schedule.step())
    return optimizer


def clip_by_global_norm(parameters: Iterable[nn.Parameter], max_norm: float) -> None:
    """Scale all gradients in place so that their global L2 norm is at most `max_norm`."""
    nn.utils.clip_grad_norm_(parameters, max_norm)


def _optimizer(config: schema.Optimizer, parameters: list[nn.Parameter]) -> Optimizer:
    """Return torch's optimizer with the settings of `config`."""
    # DTensors apart from tensors: on GPUs torch.optim updates a group by one call, which takes no mixture of them. And
    # groups at all because torch.optim refuses an empty list, which a stage with nothing but a ReLU gives.
    parts = [[one for one in parameters if is_dtensor(one) == is_one] for is_one in (False, True)]
    groups = [{"params": part} for part in parts if part] or [{"params": parameters}]
    match config:
        case schema.SGD():
            return SGD(
                groups,
                lr=config.learning_rate,
                momentum=config.momentum,
                nesterov=config.nesterov,
                weight_decay=config.weight_decay,
            )
        case schema.Adam():
            kind = AdamW if isinstance(config, schema.AdamW) else Adam
            return kind(
                groups,
                lr=config.learning_rate,
                betas=(config.beta1, config.beta2),
                eps=config.epsilon,
                weight_decay=config.weight_decay,
            )
