"""What is said of programs as their users run them: fit, steps of their own, plain calls, state, seeds, tables, masks.

The whole table takes minutes (`pytest -m slow --whole`); a sample is run always.
"""

from collections import Counter
from pathlib import Path

import pytest
from users_rows import Row, pair, speaks
from users_table import ROWS

from parity.pairs import compare
from parity.results import CaseResult

SAMPLE = {
    # same
    "penalty_of_kernel_both",
    # differs
    "fit_halved",
}


def test_the_table_is_large_and_its_names_are_its_own():
    truths = Counter(row.truth for row in ROWS)
    assert truths["differs"] >= 200
    assert truths["same"] >= 200
    assert max(Counter(row.name for row in ROWS).values()) == 1
    assert {row.name for row in ROWS} >= SAMPLE


@pytest.mark.usefixtures("verdicts_only")
@pytest.mark.parametrize(
    "row", [pytest.param(row, id=row.name, marks=[] if row.name in SAMPLE else pytest.mark.slow) for row in ROWS]
)
def test_what_is_said_of_a_row_is_true(row: Row, backends, tmp_path: Path):
    result = compare.compared(pair(row, tmp_path), backends, tmp_path, row.varied)
    assert speaks(row, result), result


@pytest.mark.parametrize(
    ("truth", "verdict", "reason"),
    [("same", "diverged", ""), ("same", "inconclusive", ""), ("differs", "match", ""), ("differs", "error", "a crash")],
)
def test_a_wrong_verdict_is_seen(truth, verdict, reason):
    row = next(row for row in ROWS if row.truth == truth and not row.also)
    assert not speaks(row, CaseResult(case=row.name, verdict=verdict, reason=reason))
