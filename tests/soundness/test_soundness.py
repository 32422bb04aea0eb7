"""No port that differs on its inputs passes, and no identical pair at the edges of floating point is an alarm.

The whole table takes minutes (`pytest -m slow --whole`); a sample is run always.
"""

from collections import Counter
from pathlib import Path

import pytest
from rows import Row, pair, speaks
from table import ROWS

from parity.pairs import compare

SAMPLE = {
    # same
    "way_softmax",
    # differs
    "mask_off_by_one",
}


def test_the_table_is_large_and_its_names_are_its_own():
    truths = Counter(row.truth for row in ROWS)
    assert truths["differs"] >= 150
    assert truths["same"] >= 150
    assert max(Counter(row.name for row in ROWS).values()) == 1
    assert {row.name for row in ROWS} >= SAMPLE


@pytest.mark.usefixtures("verdicts_only")
@pytest.mark.parametrize(
    "row", [pytest.param(row, id=row.name, marks=[] if row.name in SAMPLE else pytest.mark.slow) for row in ROWS]
)
def test_what_is_said_of_a_row_is_true(row: Row, backends, tmp_path: Path):
    result = compare.compared(pair(row, tmp_path), backends, tmp_path)
    assert speaks(row, result), result
