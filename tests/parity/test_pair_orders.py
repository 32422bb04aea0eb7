"""In which order of axes two tensors are nearest, and how far apart they are then."""

import numpy as np
import pytest
from pair_halves import normal

from parity.pairs.activations.values import Tensor, distance, fit, orders


def test_the_orders_of_axes_are_those_that_merge_and_split() -> None:
    assert list(orders((2, 5, 7, 3), (2, 3, 5, 7))) == [(0, 3, 1, 2)]
    assert list(orders((2, 5, 4, 3), (2, 5, 12))) == [(0, 1, 2, 3), (0, 1, 3, 2)]
    assert list(orders((10, 3), (2, 5, 3))) == [(0, 1)]
    assert list(orders((2, 3), (3, 2))) == [(1, 0)]
    assert not orders((4, 9), (6, 6))
    assert not orders((2, 3), (2, 4))
    assert next(iter(orders((2, 4, 4, 4), (2, 4, 4, 4)))) == (0, 1, 2, 3)
    assert list(orders((), ())) == [()]
    assert list(orders((1, 1, 5), (5,))) == [(0, 1, 2)]
    assert list(orders((2, 1, 1, 3), (2, 3, 1, 1))) == [(0, 3, 1, 2)]
    assert len(orders((2,) * 8, (2,) * 8)) == 5040


@pytest.mark.parametrize("axes", [(0, 3, 1, 2), (1, 0, 2, 3), (3, 2, 1, 0)])
def test_values_tell_the_order_where_lengths_do_not(axes: tuple[int, ...]) -> None:
    keras = normal(0, 4, 4, 4, 4)
    found = fit(Tensor(keras.transpose(axes)), Tensor(keras))
    assert found == (axes, 0.0)
    merged = fit(Tensor(keras.transpose(axes).reshape(16, 16)), Tensor(keras))
    assert merged == (axes, 0.0)


def test_sparse_tensors_and_those_with_nan_have_their_order() -> None:
    keras = np.zeros((4, 64, 64))
    keras[1, 2, 3], keras[0, 1, 1], keras[3, 3, 2] = 1.0, np.nan, -2.0
    assert fit(Tensor(keras.transpose(0, 2, 1)), Tensor(keras)) == ((0, 2, 1), 0.0)
    torch = keras.copy()
    torch[0, 1, 1] = 0.0
    apart = fit(Tensor(torch), Tensor(keras))
    assert apart and apart.distance == np.inf


def test_the_distance_is_relative_and_survives_any_magnitude() -> None:
    one = normal(0, 100)
    for scale in (1e-300, 1.0, 1e300):
        assert distance(one * scale, one * scale * (1 + 1e-3)) == pytest.approx(1e-3, rel=1e-2)
    assert distance(one, normal(1, 100)) > 1.2
    assert distance(one[:0], one[:0]) == 0.0
    assert distance(np.zeros(3), np.zeros(3)) == 0.0


def test_floats_integers_and_booleans_are_never_the_same() -> None:
    numbers = np.arange(6)
    assert fit(Tensor(numbers), Tensor(numbers.astype(np.int32)))
    for other in (numbers.astype(float), numbers > 2):
        assert fit(Tensor(numbers), Tensor(other)) is None


def test_an_order_is_not_guessed_by_values_that_differ() -> None:
    """Of unrelated values some order is always the nearest."""
    torch, keras = Tensor(normal(0, 2, 6, 6, 6)), Tensor(normal(1, 2, 6, 6, 6))
    assert fit(torch, keras).order == (0, 1, 2, 3)
    assert fit(torch, keras, preferred=[(0, 3, 1, 2)]).order == (0, 3, 1, 2)
    assert fit(torch, keras, known=(0, 3, 1, 2), preferred=[(0, 2, 1, 3)]).order == (0, 3, 1, 2)


def test_values_that_are_near_tell_the_order_unless_the_layers_do() -> None:
    keras = normal(0, 2, 6, 6, 6)
    torch = Tensor(keras.transpose(0, 3, 1, 2) + 0.01 * normal(1, 2, 6, 6, 6))
    assert fit(torch, Tensor(keras), preferred=[(0, 1, 2, 3)]).order == (0, 3, 1, 2)
    assert fit(torch, Tensor(keras), known=(0, 1, 2, 3)).order == (0, 1, 2, 3)


def test_equal_values_tell_the_order_whatever_the_layers_say() -> None:
    keras = normal(0, 2, 6, 6, 6)
    assert fit(Tensor(keras.transpose(0, 3, 2, 1)), Tensor(keras), known=(0, 3, 1, 2)) == ((0, 3, 2, 1), 0.0)


def test_an_order_that_does_not_fit_is_none() -> None:
    torch, keras = Tensor(normal(0, 2, 3, 5, 6)), Tensor(normal(1, 2, 5, 6, 3))
    assert fit(torch, keras, known=(0, 1, 2, 3)).order == (0, 3, 1, 2)
