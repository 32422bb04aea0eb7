"""What the learning rates of all steps tell of two schedules, in place of the first rate that differs."""

from types import SimpleNamespace
from typing import Any

import pytest

from parity.pairs.causes.schedules import name_schedules
from parity.results import CaseResult, Cause
from parity.trace.training import Training

COSINE = [0.1, 0.09330127018922195, 0.075, 0.05]  # to 0 in 6 steps
LONGER = [0.1, 0.09619397662556434, 0.08535533905932738, 0.06913417161825449]  # in 8
TO_A_TENTH = [0.01 + 0.9 * rate for rate in COSINE]
LINEAR = [0.1, 0.09, 0.08, 0.07]
ROWS: dict[str, tuple[list[float], list[float], list[tuple[str, Any, Any]], str]] = {
    "ahead": ([0.0, 0.1, 0.2, 0.3], [0.1, 0.2, 0.3, 0.4], [("schedule.offset", 0, 1)], "1 step later"),
    "behind": ([0.1, 0.2, 0.3, 0.4], [0.0, 0.1, 0.2, 0.3], [("schedule.offset", 0, -1)], "1 step earlier"),
    "ahead by two": ([0.1, 0.2, 0.3, 0.4], [0.3, 0.4, 0.5, 0.6], [("schedule.offset", 0, 2)], "2 steps later"),
    "ahead until both fall": (
        [0.1, 0.2, 0.3, 0.2],
        [0.2, 0.3, 0.3, 0.2],
        [("schedule.offset", 0, 1)],
        "",
    ),
    "the last is set later": ([0.0, 0.1, 0.2, 0.3], [0.1, 0.2, 0.3, 0.3], [("schedule.offset", 0, 1)], ""),
    "one of the steps": ([0.1, 0.1, 0.05, 0.01], [0.1, 0.05, 0.05, 0.01], [("schedule.rate", 0.1, 0.05)], ""),
    "half the rate": ([0.4, 0.2, 0.1, 0.05], [0.2, 0.1, 0.05, 0.025], [("sgd.learning_rate", 0.4, 0.2)], ""),
    "another rate": ([0.1] * 4, [0.2] * 4, [("sgd.learning_rate", 0.1, 0.2)], "as before"),
    "stays": ([0.1] * 4, COSINE, [("schedule.rate", 0.1, COSINE[1])], "torch's rate stays the same"),
    "stays in keras": (COSINE, [0.1] * 4, [("schedule.rate", COSINE[1], 0.1)], "keras's rate stays the same"),
    "end": (COSINE, TO_A_TENTH, [("schedule.end", 0.0, 0.01)], "begins with 0.1"),
    "length": (COSINE, LONGER, [("schedule.length", 6.0, 8.0)], "cosine"),
    "factor": ([0.8, 0.4, 0.2, 0.1], [0.8, 0.2, 0.05, 0.0125], [("schedule.factor", 0.5, 0.25)], "power"),
    "slower": (LINEAR, [0.1, 0.095, 0.09, 0.085], [("schedule.rate", 0.09, 0.095)], "0.5 times as far from 0.1"),
}


def told(mine: list[float], theirs: list[float], cause: Cause) -> list[Cause]:
    result = CaseResult(case="pair/x", verdict="diverged", causes=[cause])
    traces: list[Any] = [
        SimpleNamespace(manifest=SimpleNamespace(training=Training(rates=list(rates)))) for rates in (mine, theirs)
    ]
    name_schedules(result, *traces)
    return result.causes


@pytest.mark.parametrize("row", ROWS)
def test_what_the_rates_tell(row: str) -> None:
    mine, theirs, expected, words = ROWS[row]
    step = [a == b for a, b in zip(mine, theirs, strict=True)].index(False)
    id_ = "schedule.rate" if step else "sgd.learning_rate"
    causes = told(mine, theirs, Cause(id=id_, where="w", torch=mine[step], keras=theirs[step], evidence="as before"))
    assert [(each.id, each.torch, each.keras) for each in causes] == expected
    assert all(words in each.evidence for each in causes)


def test_a_group_with_a_rate_of_its_own_has_a_cause_of_its_own() -> None:
    cause = Cause(id="sgd.learning_rate", where="w", torch=0.1, keras=0.5, evidence="")
    assert told([0.1, 0.2, 0.3, 0.4], [0.2, 0.3, 0.4, 0.5], cause) == [cause]
