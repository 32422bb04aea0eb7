"""The time that spans cover."""

import pytest

from parity.core.clock import covered


@pytest.mark.parametrize(
    ("spans", "expected"),
    [([], 0), ([(1, 3)], 2), ([(4, 6), (1, 3)], 4), ([(1, 5), (2, 3), (4, 7)], 6), ([(1, 2), (2, 4), (2, 2)], 3)],
)
def test_what_several_cover_counts_once(spans: list[tuple[float, float]], expected: float) -> None:
    assert covered(spans) == expected
