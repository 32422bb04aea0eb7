"""Causes in losses, gradients and optimizers, in what training starts from and in what it sees.

Each is named with both sides' values where one side follows another convention; else none is.
"""

import itertools
from typing import Any

import numpy as np
import pytest
from calls import Example
from data_examples import of_inputs, of_samples, of_start, of_starts
from loss_examples import of_cross_entropies, of_gradients, of_losses, of_reductions
from observations import Array, blurred, normal
from optimizer_examples import of_adam, of_optimizers, of_sgd

from parity.diagnose import explain, gradients, initial_parameters, inputs, losses, optimizers, reductions, samples
from parity.diagnose.explain import Change
from parity.diagnose.formula import NEEDED, Formula
from parity.diagnose.initial_parameters import InitialParameter
from parity.diagnose.losses import LossValue
from parity.diagnose.reductions import Reduction
from parity.diagnose.samples import Samples
from parity.diagnose.topic import Compared
from parity.diagnose.updates import Updates


def formula(observation: Any) -> Formula[Any]:
    match observation:
        case Updates():
            return optimizers.formula(observation.case)
        case LossValue():
            return losses.FORMULAS[observation.case.loss.kind]
        case Compared():
            return (inputs if "input" in observation.seen else gradients).FORMULA
    own = {
        Reduction: reductions,
        InitialParameter: initial_parameters,
        Samples: samples,
    }
    return own[type(observation)].FORMULA


def changes(reference: Any, candidate: Any) -> tuple[Change, ...]:
    """What the candidate does otherwise."""
    return explain.compare(formula(reference), reference, candidate).changes


ALL = [
    *(("optimizer", each) for each in of_optimizers()),
    *(("loss", each) for each in itertools.chain(of_losses(), of_cross_entropies())),
    *(("gradient", each) for each in itertools.chain(of_reductions(), of_gradients())),
    *(("start", each) for each in of_starts()),
    *(("seen", each) for each in itertools.chain(of_samples(), of_inputs())),
]
EXAMPLES = [pytest.param(each, id=f"{kind}-{each.cause}-{each.theirs}") for kind, each in ALL]


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_cause_is_named_with_both_values(example: Example):
    (change,) = changes(example.reference, example.candidate)
    assert (change.cause, change.reference, change.candidate) == (
        example.cause,
        example.mine,
        pytest.approx(example.theirs, rel=1e-9) if isinstance(example.theirs, float) else example.theirs,
    )
    assert change.bits >= NEEDED > change.before


def can_be_blurred(example: Example) -> bool:
    """Whole numbers have no noise; and where it is not known what should have been, the evidence is not in digits."""
    return np.issubdtype(_value(example.reference).dtype, np.floating) and example.theirs not in (
        "flows",
        "glorot_uniform",
    )


def _value(observation: Any) -> Array:
    return next(iter(observation.seen.values())).value


# What nothing explains takes an optimizer half a second.
SOME = [each for i, (kind, each) in enumerate(ALL) if kind != "optimizer" or i % 8 == 0]
BLURRED = [each for each in SOME if can_be_blurred(each)]


@pytest.mark.parametrize(
    "example",
    [pytest.param(each, marks=pytest.mark.slow if each.cause.startswith("adam.") else []) for each in BLURRED],
    ids=lambda example: f"{example.cause}-{example.theirs}",
)
def test_nothing_is_named_below_20_bits(example: Example):
    assert not changes(example.reference, blurred(example.candidate, example.reference))


def test_every_cause_has_an_example():
    formulas = (
        *(formula for kind, formula in optimizers.FORMULAS.items() if kind not in optimizers.STATED),
        *losses.FORMULAS.values(),
        reductions.FORMULA,
        gradients.FORMULA,
        initial_parameters.FORMULA,
        samples.FORMULA,
        inputs.FORMULA,
    )
    causes = {trait.cause for formula in formulas for trait in formula.traits}
    in_pairs = {"optimizer.sparse_gradient"}  # and all of STATED: tests/test_pair_later.py
    assert causes - {example.cause for _, example in ALL} == in_pairs


def test_too_few_values_tell_no_constant():
    """A bias of one element: two updates and two velocities would fit many momentums."""
    reference, candidate = of_sgd(shape=(1,), decay=0.0), of_sgd(shape=(1,), decay=0.0, momentum=0.8)
    assert not changes(reference, candidate)


def test_two_constants_at_once():
    found = changes(of_adam(), of_adam(0.0003, epsilon=1e-7))
    assert [(each.cause, each.candidate) for each in found] == [
        ("adam.learning_rate", pytest.approx(0.0003)),
        ("adam.epsilon", pytest.approx(1e-7)),
    ]


def test_what_was_drawn_and_noise_added_to_it_is_no_initialisation():
    bound = 10**-0.5  # kaiming_uniform's for ten inputs
    drawn = np.random.default_rng(0).uniform(-bound, bound, (20, 10))
    noisy = np.clip(drawn + 1e-3 * normal(20, 10), -bound, bound)
    assert not explain.compare(initial_parameters.FORMULA, of_start(drawn, drawn), of_start(noisy, drawn)).changes
