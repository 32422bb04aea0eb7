"""Optimizers whose settings are recorded: what the two sides set otherwise is named, and nothing else."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import observations
import pytest
from observations import Array, case

from parity.diagnose import explain, optimizer_steps, optimizers
from parity.diagnose.updates import Updates

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
FALLING = {"rates": tuple(0.01 * 0.5**t for t in range(STEPS + 1))}
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


def test_the_form_of_the_momentum_is_named_under_a_schedule_alone():
    inside = {"momentum_form": "rate inside"}
    assert causes(trained(), trained(**inside)) == []
    assert causes(trained(**FALLING), trained(**FALLING, **inside)) == [
        ("sgd.momentum_form", "rate outside", "rate inside")
    ]


def test_another_kind_is_named_by_itself():
    sgd = observations.updates(CASE, observations.sgd(0.01, 0.5), 0.01)
    theirs = sgd._replace(settings={**USUAL, "kind": "sgd"})
    assert causes(trained(), theirs) == [("optimizer.kind", "rmsprop", "sgd")]


def test_a_derived_class_may_do_what_the_reference_does_whatever_it_states():
    theirs = trained(rho=0.95)
    stated = theirs.settings | {"epsilon_placement": "inside the root", "momentum_form": "rate inside"}
    assert causes(trained(), theirs._replace(settings=stated)) == [("rmsprop.rho", 0.9, 0.95)]


def test_settings_that_do_not_explain_the_updates_tell_nothing():
    """As where a step of the user's own does more than its optimizer."""
    theirs = trained(rho=0.99)
    wrong = theirs._replace(settings={**theirs.settings, "rho": 0.95})
    assert optimizer_steps.explained_by_settings(FORMULA, trained(), wrong) is None
    assert optimizer_steps.explained_by_settings(FORMULA, trained(), theirs._replace(settings=None)) is None


def test_every_cause_of_the_formula_is_tried():
    tried = set(OTHER) | {"sgd.momentum_form", "optimizer.kind"}
    shared = {trait.cause for trait in optimizers.SHARED}
    assert {trait.cause for trait in FORMULA.traits} - shared - tried == set()


def test_settings_of_another_version_cost_no_verdict():
    """Traces may have been recorded by a program that names settings otherwise."""
    theirs = trained()._replace(settings={**USUAL, "unheard_of": 1.0})
    answer = explain.guarded(lambda: optimizer_steps.explained_by_settings(FORMULA, trained(), theirs))
    assert isinstance(answer.error, TypeError) and not answer.known
