"""By which settings an optimizer of PyTorch's own updates each parameter."""

import math
from collections.abc import Mapping
from typing import Any

from torch.optim import SGD, Adam, AdamW, Optimizer, RMSprop

from parity.trace.manifest import ParameterGroup, Settings


def groups(optimizer: Optimizer, parameters: Mapping[str, Any]) -> list[ParameterGroup]:
    """Return the groups of an optimizer; none if its class is another, whose updates may follow another formula.

    Args:
        optimizer: of torch.optim, or the user's own.
        parameters: the trained parameters by their canonical names.
    """
    if type(optimizer) not in SETTINGS:
        return []
    names = {id(parameter): name for name, parameter in parameters.items()}
    made = [
        ParameterGroup(
            parameters=[names[id(parameter)] for parameter in group["params"] if id(parameter) in names],
            settings=_shared(group) | SETTINGS[type(optimizer)](group),
        )
        for group in optimizer.param_groups
    ]
    return made if all(group.is_finite for group in made) else []


def rate(optimizer: Optimizer) -> float | None:
    """Return the learning rate of the next step; None if the optimizer has none that is a number."""
    number = float(optimizer.param_groups[0].get("lr", math.nan))
    return number if math.isfinite(number) else None


def is_scheduled(optimizer: Optimizer) -> bool:
    """Return whether a scheduler sets the learning rate: it marks the `step` of its optimizer."""
    return bool(getattr(optimizer.step, "_wrapped_by_lr_sched", False))


def _shared(group: Settings) -> Settings:
    return {
        "learning_rate": float(group["lr"]),
        "weight_decay": float(group["weight_decay"]),
        "decay_form": "decoupled" if group.get("decoupled_weight_decay") else "coupled",
        "sign": -1 if group["maximize"] else 1,
    }


def _sgd(group: Settings) -> Settings:
    constants = {"momentum": float(group["momentum"]), "dampening": float(group["dampening"])}
    return {"kind": "sgd", "nesterov": bool(group["nesterov"]), **constants}


def _adam(group: Settings) -> Settings:
    beta1, beta2 = map(float, group["betas"])
    constants = {"beta1": beta1, "beta2": beta2, "epsilon": float(group["eps"])}
    return {"kind": "adam", "amsgrad": bool(group["amsgrad"]), **constants}


def _rmsprop(group: Settings) -> Settings:
    return {
        "kind": "rmsprop",
        "rho": float(group["alpha"]),
        "momentum": float(group["momentum"]),
        "centered": bool(group["centered"]),
        "epsilon": float(group["eps"]),
        "epsilon_placement": "outside the root",
    }


SETTINGS = {SGD: _sgd, Adam: _adam, AdamW: _adam, RMSprop: _rmsprop}
