"""Optimizers that follow another convention than the usual one, each with the cause that is to be named."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import observations
from calls import Example
from observations import Array, adam, case, sgd

from parity.diagnose.observation import Updates

SGD = case(optimizer={"kind": "sgd", "learning_rate": 0.05, "momentum": 0.9, "weight_decay": 0.01})
STEPPED = case(optimizer={"kind": "sgd", "learning_rate": 0.05, "momentum": 0.9}, schedule={"every": 2, "factor": 0.1})
ADAM = case(optimizer={"kind": "adam", "weight_decay": 0.01})
ADAMW = case(optimizer={"kind": "adamw"})


def stepped(every: int = 2, factor: float = 0.1, early: int = 0) -> Callable[[int], float]:
    return lambda t: 0.05 * factor ** ((t + early) // every)


def of_sgd(rate: float = 0.05, seed: int = 0, shape: tuple[int, ...] = (6, 5), **constants: Any) -> Updates:
    rule = sgd(rate, **{"momentum": 0.9, "decay": 0.01, **constants})
    return observations.updates(SGD, rule, rate, shape, seed=seed)


def of_schedule(rate: Callable[[int], float]) -> Updates:
    return observations.updates(STEPPED, sgd(rate, 0.9), rate)


def of_adam(rate: float = 0.001, size: float = 1e-2, **constants: Any) -> Updates:
    return observations.updates(ADAM, adam(rate, **{"decay": 0.01, **constants}), rate, size=size)


def of_adamw(**constants: Any) -> Updates:
    return observations.updates(ADAMW, adam(**{"decay": 0.01, "decoupled": True, **constants}), 0.001)


def velocity_with_rate(t: int, p: Array, g: Array, slots: dict[str, Array]) -> Array:
    """Keras's: v = momentum v - rate g; p = p + v."""
    slots["momentum_buffer"] = 0.9 * slots.get("momentum_buffer", np.zeros_like(p)) - stepped()(t) * g
    return p + slots["momentum_buffer"]


def decoupled_sgd(t: int, p: Array, g: Array, slots: dict[str, Array]) -> Array:
    return sgd(0.05, 0.9)(t, p * (1 - 0.05 * 0.01), g, slots)


def unmoved(t: int, p: Array, g: Array, slots: dict[str, Array]) -> Array:
    slots["momentum_buffer"] = np.zeros_like(p)
    return p


def upwards(t: int, p: Array, g: Array, slots: dict[str, Array]) -> Array:
    return sgd(0.05, 0.9, 0.01)(t, p, -g, slots)


def amsgrad(t: int, p: Array, g: Array, slots: dict[str, Array]) -> Array:
    adam(decay=0.01)(t, p, g, slots)
    largest = slots["max_exp_avg_sq"] = np.maximum(slots.get("max_exp_avg_sq", 0.0), slots["exp_avg_sq"])
    mean = slots["exp_avg"] / (1 - 0.9 ** (t + 1))
    return p - 0.001 * mean / (np.sqrt(largest / (1 - 0.999 ** (t + 1))) + 1e-8)


def epsilon_hat(m: Array, v: Array, correction1: float, correction2: float) -> Array:
    """Kingma and Ba, end of section 2; Keras's."""
    return math.sqrt(correction2) / correction1 * m / (np.sqrt(v) + 1e-8)


def uncorrected(m: Array, v: Array, correction1: float, correction2: float) -> Array:
    return m / (np.sqrt(v) + 1e-8)


def power_in_float32(beta: float, t: int) -> float:
    return float(np.power(np.float64(np.float32(beta)), t))


def of_optimizers() -> Iterator[Example]:
    fp32 = float(np.float32(0.05))
    plain, scheduled, usual, adamw = of_sgd(), of_schedule(stepped()), of_adam(), of_adamw()
    bias = {"shape": (12,)}
    yield Example("sgd.learning_rate", plain, of_sgd(0.01), 0.05, 0.01)
    yield Example("sgd.momentum", plain, of_sgd(momentum=0.8), 0.9, 0.8)
    yield Example("sgd.nesterov", plain, of_sgd(nesterov=True), False, True)
    yield Example("sgd.dampening", plain, of_sgd(dampening=0.25), 0.0, 0.25)
    velocity = observations.updates(STEPPED, velocity_with_rate, stepped())
    yield Example("sgd.momentum_form", scheduled, velocity, "rate outside", "rate inside, negative")
    yield Example("schedule.offset", scheduled, of_schedule(stepped(early=1)), 0, 1)
    yield Example("schedule.factor", scheduled, of_schedule(stepped(factor=0.5)), 0.1, 0.5)
    yield Example("schedule.every", scheduled, of_schedule(stepped(every=3)), 2, 3)
    yield Example("weight_decay.form", plain, observations.updates(SGD, decoupled_sgd, 0.05), "coupled", "decoupled")
    yield Example("weight_decay.value", plain, of_sgd(decay=0.004), 0.01, 0.004)
    yield Example("weight_decay.value", plain, of_sgd(decay=0.0), 0.01, 0.0)
    yield Example("weight_decay.excludes_bias", of_sgd(**bias), of_sgd(decay=0.0, **bias), "all", "matrices")
    yield Example("constant.precision", plain, of_sgd(fp32), "float64", "rate")
    yield Example(
        "update.frozen", plain, observations.updates(SGD, unmoved, 0.05), "no", "parameter and optimizer state"
    )
    yield Example("update.sign", plain, observations.updates(SGD, upwards, 0.05), 1, -1)
    yield Example("optimizer.kind", plain, observations.updates(SGD, adam(0.05, decay=0.01), 0.05), "sgd", "adam")
    yield Example("adam.learning_rate", usual, of_adam(0.0003), 0.001, 0.0003)
    yield Example("adam.beta1", usual, of_adam(beta1=0.95), 0.9, 0.95)
    yield Example("adam.beta2", usual, of_adam(beta2=0.99), 0.999, 0.99)
    yield Example("adam.epsilon", usual, of_adam(epsilon=1e-7), 1e-8, 1e-7)
    yield Example("adam.epsilon", of_adam(size=1e-7), of_adam(size=1e-7, epsilon=1e-3), 1e-8, 1e-3)
    after, before = "after the correction", "before the correction"
    yield Example("adam.epsilon_placement", usual, of_adam(direction=epsilon_hat), after, before)
    yield Example("adam.bias_correction", usual, of_adam(direction=uncorrected), "both", "none")
    yield Example("adam.amsgrad", usual, observations.updates(ADAM, amsgrad, 0.001), False, True)
    yield Example("adam.beta_precision", usual, of_adam(power=power_in_float32), "float64", "float32")
    yield Example("adam.step", usual, of_adam(power=lambda beta, t: beta ** (t + 1)), 1, 2)
    yield Example("adamw.weight_decay", adamw, of_adamw(decay=0.004), 0.01, 0.004)
    yield Example("weight_decay.form", adamw, of_adamw(decoupled=False), "decoupled", "coupled")
