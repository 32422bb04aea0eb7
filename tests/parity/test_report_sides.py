"""What each side does is told of both sides, if it is known of one."""

import pytest
from msgspec.structs import replace

from parity.report.terminal import text as explained
from parity.report.words import sides_in_words, sides_of
from parity.results import CaseResult, Cause

CAUSE = Cause(id="embedding.padding_idx", where="table", source="model.py:3")


@pytest.mark.parametrize(
    ("torch", "keras", "words"),
    [(1e-05, 0.0, "torch 1e-05, keras 0.0"), (3, None, "torch 3, keras None"), (None, None, "")],
)
def test_both_sides_are_told_if_one_is_known(torch, keras, words):
    assert sides_in_words(replace(CAUSE, torch=torch, keras=keras)) == words


def test_sides_have_the_names_that_the_cause_has():
    assert sides_of(replace(CAUSE, reference="mean", candidate="sum")) == {"reference": "mean", "candidate": "sum"}


@pytest.mark.parametrize(
    ("evidence", "told"),
    [("recomputed", True), ("called again with 1 -> 2 in act (/home/user/port.py:3)", False)],
)
def test_the_port_s_line_is_told_once(evidence: str, told: bool) -> None:
    cause = Cause(id="code.constant", where="x", torch=2, keras=1, evidence=evidence, source="port.py:3")
    text = explained(CaseResult(case="pair/a", verdict="diverged", causes=[cause]))
    assert ("keras's is made at port.py:3" in text) == told
