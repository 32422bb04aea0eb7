"""Which missing gradients are told where the forward pass differs too."""

import pytest
from msgspec.structs import replace

from parity.diagnose.gradients import without_followers
from parity.results import Cause
from parity.verdict.traces import Unequal

UNEQUAL = [Unequal(0, 0, "activation", "encoder.attention#1"), Unequal(0, 0, "gradient", "key.weight")]


def cause(id_: str, where: str) -> Cause:
    return Cause(id=id_, where=where)


MISSING = cause("gradient.missing", "key.weight")


@pytest.mark.parametrize(
    ("other", "is_told"),
    [
        (cause("attention.mask", "encoder.attention"), False),
        (cause("attention.mask", "encoder.attention#1"), False),
        (cause("encoder.mask", "encoder"), False),  # around the attention
        (cause("code.constant", "(model)"), False),
        (cause("unknown", "encoder.attention"), True),
        (cause("internal_error", "encoder.attention"), True),
        (cause("adam.epsilon", "key.weight"), True),
        (cause("attention.mask", "another"), True),
    ],
)
def test_a_missing_gradient_is_not_told_behind_a_named_difference_of_the_forward_pass(other: Cause, is_told: bool):
    left = without_followers([MISSING, other], UNEQUAL, accepted=[])
    assert left == ([MISSING, other] if is_told else [other])


def test_a_missing_gradient_is_told_behind_an_accepted_difference():
    accepted = cause("attention.mask", "encoder.attention")
    both = [MISSING, accepted]
    assert without_followers(both, UNEQUAL, [replace(accepted, reason="published so")]) == both


def test_a_missing_gradient_is_told_where_the_forward_pass_of_the_first_step_agrees():
    later = [Unequal(1, 0, "activation", "encoder.attention"), *UNEQUAL[1:]]
    both = [MISSING, cause("attention.mask", "encoder.attention")]
    assert without_followers(both, later, []) == both
