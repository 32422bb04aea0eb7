"""How losses, gradients and updates differ, in words."""

import numpy as np
import pytest

from parity.diagnose.experiment.later import difference

W = np.arange(1.0, 13.0).reshape(4, 3)


def without(*rows: int) -> np.ndarray:
    array = W.copy()
    array[list(rows)] = 0.0
    return array


def other(row: int) -> np.ndarray:
    array = W.copy()
    array[row, 1] += 1.0
    return array


@pytest.mark.parametrize(
    ("kind", "torch", "keras", "words"),
    [
        ("gradient", W, np.zeros_like(W), "keras gives w no gradient, torch does"),
        ("gradient", without(1), W, "torch gives row 1 of w no gradient, keras does"),
        ("gradient", W, without(0, 2), "keras gives rows 0, 2 of w no gradient, torch does"),
        ("gradient", W, -0.5 * W, "the gradient of w in keras is -0.5 times that in torch"),
        ("gradient", W, other(2), "the gradient of w differs in row 2 alone; the cosine"),
        ("gradient", W, W[:, ::-1], "the gradient of w differs in 8 of 12 elements; the cosine"),
        ("update", W, np.zeros_like(W), "keras leaves w as it is, torch moves it"),
        ("update", W, 2 * W, "the update of w in keras is 2 times that in torch"),
        ("loss", np.array(2.0), np.array(2.5), "keras's loss is torch's + 0.5, or 1.25 times it"),
        ("loss", np.array(0.0), np.array(-1.0), "keras's loss is torch's - 1"),
    ],
)
def test_a_difference_is_told(kind: str, torch: np.ndarray, keras: np.ndarray, words: str):
    assert difference(kind, "w", torch, keras).startswith(words)
