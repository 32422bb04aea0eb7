"""By which settings an optimizer of Keras's own updates each parameter."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from keras.optimizers import SGD, Adam, AdamW, Optimizer, RMSprop
from keras.optimizers.schedules import LearningRateSchedule

from parity.trace.manifest import ParameterGroup, Settings


def groups(optimizer: Optimizer, parameters: Mapping[str, Any]) -> list[ParameterGroup]:
    """Return the groups of an optimizer; none if its class is another, whose updates may follow another formula.

    None either if it keeps an average of the weights, or applies the gradients of several steps at once.

    Args:
        optimizer: of keras.optimizers, or the user's own.
        parameters: the trained variables by their canonical names.
    """
    number = rate(optimizer)
    if type(optimizer) not in SETTINGS or optimizer.use_ema or optimizer.gradient_accumulation_steps or number is None:
        return []
    shared = {"learning_rate": number, **SETTINGS[type(optimizer)](optimizer)}
    decays = {name: _decay(optimizer, variable) for name, variable in parameters.items()}
    made = [
        ParameterGroup(
            parameters=[name for name, own in decays.items() if own == decay],
            settings=shared | {"weight_decay": decay, "decay_form": "decoupled"},
        )
        for decay in dict.fromkeys(decays.values())
    ]
    return made if all(group.is_finite for group in made) else []


def rate(optimizer: Optimizer) -> float | None:
    """Return the learning rate of the next step; None if it is no number, or code of the user's gives it.

    That code may give another at each call.
    """
    given = optimizer._learning_rate
    is_code = callable(given) and not type(given).__module__.startswith("keras.")
    number = math.nan if is_code else float(np.asarray(optimizer.learning_rate))
    return number if math.isfinite(number) else None


def is_scheduled(optimizer: Optimizer) -> bool:
    """Return whether a schedule sets the learning rate."""
    return isinstance(optimizer._learning_rate, LearningRateSchedule)


def _decay(optimizer: Optimizer, variable: Any) -> float:
    is_decayed = optimizer.weight_decay is not None and optimizer._use_weight_decay(variable)
    return float(optimizer.weight_decay) if is_decayed else 0.0


def _sgd(optimizer: SGD) -> Settings:
    constants = {"momentum": float(optimizer.momentum), "momentum_form": "rate inside, negative"}
    return {"kind": "sgd", "nesterov": bool(optimizer.nesterov), **constants}


def _adam(optimizer: Adam) -> Settings:
    return {
        "kind": "adam",
        "beta1": float(optimizer.beta_1),
        "beta2": float(optimizer.beta_2),
        "epsilon": float(optimizer.epsilon),
        "epsilon_placement": "before the correction",
        "amsgrad": bool(optimizer.amsgrad),
    }


def _rmsprop(optimizer: RMSprop) -> Settings:
    return {
        "kind": "rmsprop",
        "rho": float(optimizer.rho),
        "momentum": float(optimizer.momentum),
        "momentum_form": "rate inside",
        "centered": bool(optimizer.centered),
        "epsilon": float(optimizer.epsilon),
        "epsilon_placement": "inside the root",
    }


SETTINGS = {SGD: _sgd, Adam: _adam, AdamW: _adam, RMSprop: _rmsprop}
