"""Optimizers whose settings are recorded: what the two sides set otherwise is named, and which slots may be wrong."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import observations
import pytest
from observations import Array, case

from parity.diagnose import optimizer_steps, optimizers
from parity.diagnose.diagnosis import Examined
from parity.diagnose.updates import Updates
from parity.pairs.hidden import slots_in_another_form
from parity.results import CaseResult
from parity.verdict.traces import Unequal

STEPS = 5
CASE = case(optimizer={"kind": "sgd"})  # of a pair's file that leaves the optimizer to the user
FORMULA = optimizers.FORMULAS["rmsprop"]
USUAL = {
    "kind": "rmsprop",
    "rates": (0.01,) * (STEPS + 1),
    "rho": 0.9,
    "momentum": 0.5,
    "momentum_form": "rate outside",
    "centered": False,
    "epsilon": 1e-6,
    "epsilon_placement": "outside the root",
    "weight_decay": 0.0,
}
OTHER = {
    "rmsprop.rho": ("rho", 0.99),
    "rmsprop.momentum": ("momentum", 0.25),
    "rmsprop.centered": ("centered", True),
    "rmsprop.epsilon": ("epsilon", 1e-5),
    "rmsprop.epsilon_placement": ("epsilon_placement", "inside the root"),
    "weight_decay.value": ("weight_decay", 0.1),
    "rmsprop.learning_rate": ("rates", (0.02,) * (STEPS + 1)),
    "schedule.rate": ("rates", (0.01, 0.01, *(0.005,) * (STEPS - 1))),
}


def trained(**changes: Any) -> Updates:
    """A parameter trained by RMSprop, as the frameworks' documentation has it."""
    stated: Mapping[str, Any] = {**USUAL, **changes}

    def rule(t: int, p: Array, g: Array, slots: dict[str, Array]) -> Array:
        rate, rho, momentum, inside = (stated[name] for name in ("rates", "rho", "momentum", "momentum_form"))
        rate = p.dtype.type(rate[t])
        g = g + stated["weight_decay"] * p
        square = slots["square_avg"] = rho * slots.get("square_avg", np.zeros_like(p)) + (1 - rho) * g**2
        mean = slots["grad_avg"] = rho * slots.get("grad_avg", np.zeros_like(p)) + (1 - rho) * g
        variance = square - mean**2 if stated["centered"] else square
        epsilon, placed = stated["epsilon"], stated["epsilon_placement"]
        root = np.sqrt(variance + epsilon) if placed == "inside the root" else np.sqrt(variance) + epsilon
        moved = slots.get("momentum_buffer", np.zeros_like(p)) * momentum
        if inside == "rate inside":
            slots["momentum_buffer"] = moved + rate * g / root
            return p - slots["momentum_buffer"]
        slots["momentum_buffer"] = moved + g / root
        return p - rate * slots["momentum_buffer"]

    made = observations.updates(CASE, rule, lambda t: stated["rates"][t])
    return made._replace(settings=dict(stated))


def causes(reference: Updates, candidate: Updates) -> list[tuple[str, Any, Any]]:
    answer = optimizer_steps.explained_by_settings(FORMULA, reference, candidate)
    assert answer
    return [(change.cause, change.reference, change.candidate) for change in answer.changes]


@pytest.mark.parametrize("cause", OTHER)
def test_a_setting_that_differs_is_named(cause: str):
    name, value = OTHER[cause]
    theirs = trained(**{name: value})
    if name == "rates":
        step = 0 if cause == "rmsprop.learning_rate" else 2
        assert causes(trained(), theirs) == [(cause, 0.01, value[step])]
    else:
        assert causes(trained(), theirs) == [(cause, USUAL[name], value)]


def test_every_cause_of_the_formula_is_tried():
    tried = set(OTHER) | {"sgd.momentum_form", "optimizer.kind"}
    shared = {trait.cause for trait in optimizers.SHARED}
    assert {trait.cause for trait in FORMULA.traits} - shared - tried == set()


def slots(*unequal: Unequal, same: tuple[str, ...] = (), steps: int = 3) -> set[str]:
    result = CaseResult(case="pair/x", verdict="diverged")
    return slots_in_another_form(Examined(result, list(unequal), same=frozenset(same)), steps)


def state(name: str, step: int | None = 0) -> Unequal:
    return Unequal(step, 0, "optimizer_state", name)


def test_known_formulas_tell_of_the_last_step_too() -> None:
    assert slots(state("a.momentum", 2), same=("update/a",)) == {"momentum"}
    assert slots(state("a.momentum", 2), same=("update/b",)) == set()
