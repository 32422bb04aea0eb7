"""What is said of a Keras model that `fit` trains otherwise than its recorded steps, or not at all."""

import msgspec
import pytest

from parity.pairs.causes.training import name_fitted
from parity.results import CaseResult
from parity.trace.mapping import Entry, Mapping
from parity.trace.training import Fitted, Training

MAPPING = Mapping(entries=[Entry(torch=["body.weight"], keras=["dense/kernel"])])


class Candidate:
    """As much of a trace as is asked for it."""

    def __init__(self, fitted: Fitted | None) -> None:
        self.manifest = msgspec.defstruct("Manifest", ["training"])(training=Training(fitted=fitted))
        self.case = msgspec.defstruct("Case", ["steps", "model"])(steps=3, model=None)


def judged(fitted: Fitted | None, verdict: str = "match") -> CaseResult:
    result = CaseResult(case="pair/x", verdict=verdict)
    name_fitted(result, Candidate(fitted), MAPPING)
    return result


def test_nothing_is_said_where_both_are_the_same():
    assert judged(None) == CaseResult(case="pair/x", verdict="match")


@pytest.mark.parametrize(
    ("fitted", "cause", "place"),
    [
        (Fitted(state=["count"], weight="dense/kernel", apart=0.5), "fit.python_state", ("parameter", "body.weight")),
        (Fitted(state=[], weight="dense/kernel", apart=0.5), "fit.graph", ("parameter", "body.weight")),
        (Fitted(state=[], weight="(model)", apart=0.5), "fit.graph", ("activation", "(model)")),
    ],
)
def test_other_weights_or_outputs_are_a_difference(fitted, cause, place):
    result = judged(fitted)
    assert result.verdict == "diverged" and [each.id for each in result.causes] == [cause]
    assert (result.first_divergence.kind, result.first_divergence.name) == place


@pytest.mark.parametrize("verdict", ["match", "subprecision"])
def test_a_fit_that_fails_leaves_nothing_to_match(verdict):
    result = judged(Fitted(state=["count"], error="fit fails: ValueError"), verdict)
    assert result.verdict == "inconclusive" and "keras_step" in result.reason
    assert result.not_compared == ["keras's steps change count in Python, and fit fails: fit fails: ValueError"]


def test_an_own_fit_that_trains_otherwise_decides_nothing():
    result = judged(Fitted(state=[], weight="dense/kernel", apart=0.5, overridden="fit"), "diverged")
    assert result.verdict == "inconclusive" and "overrides fit" in result.reason
