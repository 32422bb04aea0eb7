"""Accepted differences, and what of a pair's traces has a counterpart."""

import pytest

from parity.pairs.comparable import comparable
from parity.pairs.expect import judge_expected
from parity.pairs.mapping import Mapping, Match, Matching
from parity.pairs.schema import Expect
from parity.results import CaseResult, Finding

GELU = {"id": "gelu.form", "where": "blocks.0.mlp", "torch": "tanh", "keras": "exact", "evidence": "..."}
UNKNOWN = {"id": "unknown", "where": "head", "torch": None, "keras": None, "evidence": "..."}
ACCEPTED = Expect(cause="gelu.form", where="blocks.*.mlp", reason="the paper's form is wanted")


def result(*causes: dict, verdict: str = "diverged") -> CaseResult:
    finding = Finding(id="precision.noise", side="keras", where="x", message="...")
    return CaseResult(case="pair/m", verdict=verdict, causes=list(causes), findings=[finding])


def test_an_accepted_difference_is_a_match_that_says_so() -> None:
    case = result(GELU, {**GELU, "where": "blocks.1.mlp"})
    judge_expected(case, [ACCEPTED])
    assert case.verdict == "match" and case.findings == []
    assert [each["where"] for each in case.expected] == ["blocks.0.mlp", "blocks.1.mlp"]
    assert case.expected[0]["reason"] == ACCEPTED.reason


@pytest.mark.parametrize("other", [UNKNOWN, {**GELU, "where": "head"}, {**GELU, "id": "gelu"}])
def test_another_difference_beside_it_is_none(other: dict) -> None:
    case = result(GELU, other)
    judge_expected(case, [ACCEPTED])
    assert case.verdict == "diverged" and len(case.expected) == 1


@pytest.mark.parametrize("verdict", ["match", "diverged"])
def test_one_that_does_not_occur_fails(verdict: str) -> None:
    case = result(verdict=verdict)
    judge_expected(case, [ACCEPTED])
    assert case.verdict == "diverged" and "gelu.form at blocks.*.mlp does not occur" in case.reason


def test_a_verdict_without_a_cause_is_not_accepted() -> None:
    case = result(verdict="diverged")
    judge_expected(case, [])
    assert case.verdict == "diverged" and case.reason == ""


def test_what_has_no_counterpart_is_not_compared() -> None:
    matches = [
        Match(torch="fc", keras="dense", axes=[0, 1], inputs=[0, 1], by="weights"),
        Match(torch="act#1", keras="relu", axes=[0, 1], by="value"),
    ]
    has = comparable(Mapping(entries=[], ignored=["attn.bias"]), Matching(matches=matches))
    assert all(
        map(has, ["activation/fc", "activation/act#1", "activation/(model)", "activation/(model).y", "loss/loss"])
    )
    assert all(map(has, ["input/fc", "input/fc#1", "input/input", "input/target", "parameter/fc.weight"]))
    assert not any(map(has, ["activation/fc#1", "activation/act", "input/act", "input/act#1", "activation/other"]))
    assert not any(map(has, ["parameter/attn.bias", "gradient/attn.bias", "optimizer_state/attn.bias.exp_avg"]))


def test_without_a_mapping_everything_is_compared() -> None:
    assert comparable(None, None)("activation/anything")
