"""Whether targets stand in the order of the samples, and what is said where nothing can be known."""

import numpy as np
import pytest

from parity.doctor.order import compared, order, rows

X = np.arange(8.0).reshape(4, 2)
Y = np.array([0, 1, 1, 2])
BATCH = {"x": rows(X), "y": rows(Y)}
TURNED = [3, 2, 1, 0]


def test_rows_are_compared_by_their_numbers() -> None:
    assert rows(X) == rows(X.astype(np.float32).reshape(4, 1, 2))
    assert rows(np.float64(3)) == []
    assert order(rows(X), rows(X[TURNED])) == TURNED
    assert order(rows(Y), rows(Y[TURNED])) is None
    assert order(rows(X), rows(X + 1)) is None


@pytest.mark.parametrize(
    ("fed", "target", "expected"),
    [
        ([X], Y, "together"),
        ([X[TURNED]], Y[TURNED], "together"),
        ([X[TURNED]], Y, "apart"),
        ([X], Y[TURNED], "apart"),
        ([X[TURNED], X], Y, "together"),
        ([X / 255], Y[TURNED], ""),
        ([X], Y + 1, ""),
        ([X], np.ones(4), ""),
        ([X[:2]], Y[:2], ""),
        ([X], Y[:2], ""),
        ([], Y, ""),
    ],
)
def test_targets_and_samples(fed: list, target: np.ndarray, expected: str) -> None:
    assert compared(BATCH, [rows(each) for each in fed], rows(target)) == expected


def test_a_batch_of_inputs_with_different_numbers_of_rows_says_nothing() -> None:
    batch = {"x": rows(X), "t": rows(Y[:2])}
    assert compared(batch, [rows(X)], rows(Y[:2])) == ""
