"""Layers that are called elsewhere: of a module that needs no framework."""

import numpy as np
import pytest

from parity.diagnose.experiment.moves import moves


class Layer:
    def __init__(self, times: float, plus: float) -> None:
        self.times, self.plus = times, plus

    def __call__(self, x: np.ndarray) -> np.ndarray:
        return self.times * x + self.plus


class Net(Layer):
    def __init__(self) -> None:
        self.first, self.scale, self.last = Layer(2, 1), Layer(3, 5), Layer(7, 0)

    def __call__(self, x: np.ndarray) -> np.ndarray:
        return self.last(self.scale(x + self.first(x)) + 1)


X = np.arange(6.0).reshape(2, 3)
NET = Net()
F, S, L = NET.first, NET.scale, NET.last


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ("`scale` where it is called", L(S(X + F(X)) + 1)),
        ("`scale` behind `last`", S(L(X + F(X) + 1))),
        ("`scale` before `first`", L(X + F(S(X)) + 1)),
        ("`scale` on what is added to that of `first`", L(X + S(F(X)) + 1)),
        ("`first` before `last`", L(F(S(X + X) + 1))),
    ],
)
def test_a_layer_is_called_where_it_may_belong(place: str, expected: np.ndarray) -> None:
    names = {id(getattr(NET, name)): name for name in ("first", "scale", "last")}
    found = moves(NET, Layer, lambda: NET(X), lambda: "net.py:1", names)
    (knob,) = [each for each in found if place in (each.value, *each.words)]
    with knob.changed(place):
        assert np.array_equal(NET(X), expected)
    assert np.array_equal(NET(X), L(S(X + F(X)) + 1))
