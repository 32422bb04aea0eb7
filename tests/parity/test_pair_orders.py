"""In which order of axes two tensors are nearest, and how far apart they are then."""

import numpy as np
from pair_halves import normal

from parity.pairs.activations.values import Tensor, fit


def test_an_order_that_does_not_fit_is_none() -> None:
    torch, keras = Tensor(normal(0, 2, 3, 5, 6)), Tensor(normal(1, 2, 5, 6, 3))
    assert fit(torch, keras, known=(0, 1, 2, 3)).order == (0, 3, 1, 2)


def test_the_order_in_which_most_elements_agree_is_taken() -> None:
    """Another one is likelier without that: a matrix to which the identity is not added tells its own axes."""
    matrices = normal(0, 6, 3, 3)
    torch, likely = Tensor(matrices + 5 * np.eye(3)), [(0, 2, 1)]
    assert fit(torch, Tensor(matrices), None, likely).order == (0, 1, 2)
    assert fit(torch, Tensor(normal(1, 6, 3, 3)), None, likely).order == (0, 2, 1)
