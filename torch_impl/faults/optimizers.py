"""Faults of optimizers, schedules and clipping."""

from collections.abc import Callable, Iterable
from typing import Any

from torch import nn
from torch.optim import SGD, Adam, Optimizer
from torch.optim.lr_scheduler import StepLR

from torch_impl import optimizers
from torch_impl.faults.mutate import Patches, constant, replaced

Make = Callable[..., Optimizer]


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
