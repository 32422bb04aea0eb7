"""Gradients that one side has cut off, from the numbers of both sides: other differences are none of that."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from parity.core.arrays import Array
from parity.diagnose import clipping

DRAWS = np.random.default_rng(0).normal(size=30)
WHOLE = {"a.weight": DRAWS[:20], "a.bias": DRAWS[20:24], "b.weight": DRAWS[24:]}
LEVEL = {name: np.clip(array, -0.9, 0.9) for name, array in WHOLE.items()}


def applied(gradients: Mapping[str, Array]) -> clipping.Applied:
    norms = {name: float(np.linalg.norm(array)) for name, array in gradients.items()}
    return clipping.Applied(gradients, (), norms, float(np.linalg.norm([*norms.values()])))


@pytest.mark.parametrize(
    ("torch", "keras", "told"),
    [
        (lambda name, array: array, lambda name, array: np.clip(array, -0.5, 0.5), ("none", "each element, at 0.5")),
        (lambda name, array: array, lambda name, array: array if name[0] == "a" else -array, None),
        (lambda name, array: array, lambda name, array: array if name[0] == "a" else 0.5 * array, None),
    ],
    ids=["cut off", "sign of one module", "half of one module"],
)
def test_what_is_cut_off(
    torch: Callable[[str, Array], Array], keras: Callable[[str, Array], Array], told: tuple[Any, Any] | None
) -> None:
    """Of gradients of which several are as large as the largest, as those of weights of one size may be."""
    sides = [applied({name: change(name, array) for name, array in LEVEL.items()}) for change in (torch, keras)]
    found = clipping.compare_clipping(*sides)
    assert (found and found[1:]) == told
    assert clipping.compare_clipping(*sides[::-1]) is None


def test_what_one_side_clips_in_parts_hides_nothing() -> None:
    """Queries, keys and values are one weight of PyTorch's, and three of Keras's, each of which is clipped."""
    names = ("a", "b", "c", "packed")
    whole = {name: np.random.default_rng(number).normal(size=(3, 8)) for number, name in enumerate(names)}
    total = float(np.linalg.norm([np.linalg.norm(each) for each in whole.values()]))
    torch = {name: each * 0.3 / total for name, each in whole.items()}
    keras = {name: each * 0.3 / np.linalg.norm(each) for name, each in whole.items()}
    keras["packed"] = np.stack([row * 0.3 / np.linalg.norm(row) for row in whole["packed"]])
    found = clipping.compare_clipping(applied(keras), applied(torch))
    assert found == ("clip.scope", "each parameter, at 0.3", "all parameters, at 0.3")
