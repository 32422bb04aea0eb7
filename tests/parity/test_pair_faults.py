"""Which tensors of two halves correspond where a fault, or a way of computing, makes them differ."""

import numpy as np
import pytest
from pair_halves import Half, mapped, matching, normal, pairs, relu

from parity.core.arrays import Array


def three(half: Half, middle: list[tuple[str, str, Array]], scale: float = 1.0) -> Half:
    """linear, something without weights, linear."""
    x = normal(0, 4, 6)
    half.owns("a", weight=(6, 6))
    half.owns("b", weight=(6, 6))
    y = half.returns("a", "linear", x @ normal(1, 6, 6), given=(x,))
    for path, kind, value in middle:
        y = half.returns(path, kind, value, given=(y,))
    half.ends(half.returns("b", "linear", y @ normal(2, 6, 6) * scale, given=(y,)))
    return half


THREE = mapped(a__weight="a__weight", b__weight="b__weight")
Y = normal(0, 4, 6) @ normal(1, 6, 6)


def related(apart: float) -> Array:
    """About so far from the relu of Y."""
    return relu(Y) + apart * np.linalg.norm(relu(Y)) / np.linalg.norm(normal(3, 4, 6)) * normal(3, 4, 6)


@pytest.mark.parametrize(
    ("ours", "theirs", "apart", "found"),
    [
        ("relu", "relu", 1.2, True),  # of one kind, and alone in their place
        ("ReLU6", "relu", 0.4, True),  # of one sort
        ("avg_pool2d", "max_pool2d", 0.4, True),
        ("Pool", "MaskedAverage", 0.4, True),  # alone in their place
        ("Pool", "MaskedAverage", 2.0, False),
        ("dropout", "MaskedAverage", 0.4, False),
    ],
)
def test_what_has_no_weights_is_matched_between_what_has(ours: str, theirs: str, apart: float, found: bool) -> None:
    torch, keras = three(Half("torch"), [("m", ours, relu(Y))]), three(Half("keras"), [("n", theirs, related(apart))])
    assert pairs(matching(torch, keras, THREE)).get("m") == ("n" if found else None)


def test_of_several_calls_none_is_guessed_to_be_the_only_one() -> None:
    """torch calls a layer twice; in the port one of the calls is a function, and nothing says which."""

    def half(side: str, factor: float) -> Half:
        model = Half(side)
        model.owns("a", weight=(6, 6))
        first, second = normal(1, 4, 6), normal(2, 4, 6) * factor
        model.returns("a", "linear", *((first, second) if side == "torch" else (second,)))
        model.ends(normal(3, 4) * factor)
        return model

    names = mapped(a__weight="a__weight")
    assert pairs(matching(half("torch", 1.0), half("keras", 1.0), names)) == {"a#1": "a", "(model)": "(model)"}
    assert pairs(matching(half("torch", 1.0), half("keras", 1.1), names)) == {"a#1": "a", "(model)": "(model)"}
    assert pairs(matching(half("torch", 1.0), half("keras", -2.0), names)) == {"(model)": "(model)"}
