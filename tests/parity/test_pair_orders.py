"""In which order of axes two tensors are nearest, and how far apart they are then."""

from pair_halves import normal

from parity.pairs.activations.values import Tensor, fit


def test_an_order_that_does_not_fit_is_none() -> None:
    torch, keras = Tensor(normal(0, 2, 3, 5, 6)), Tensor(normal(1, 2, 5, 6, 3))
    assert fit(torch, keras, known=(0, 1, 2, 3)).order == (0, 3, 1, 2)
