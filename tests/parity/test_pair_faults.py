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


def test_of_two_of_one_kind_the_clearly_nearer_one() -> None:
    torch = three(Half("torch"), [("m", "relu", relu(Y))])
    for near, far, expected in ((0.1, 0.5, "p"), (0.4, 0.5, None)):
        keras = three(Half("keras"), [("n", "relu", related(far)), ("p", "relu", related(near))])
        assert pairs(matching(torch, keras, THREE)).get("m") == expected


def test_a_recurrent_layers_states_and_layers() -> None:
    """torch returns all steps and the last state, from two layers in one module; Keras has one layer each."""

    def keras_half(half: Half, factor: float) -> Half:
        steps = normal(0, 4, 5, 6)
        for layer, name in enumerate(("rnn", "rnn_1")):
            half.owns(name, kernel=(6, 6))
            half.returns(name, "gru", steps if not layer else normal(1, 4, 6) * factor)
        half.ends(normal(2, 3) * factor)
        return half

    torch = Half("torch")
    torch.owns("rnn", w0=(6, 6), w1=(6, 6))
    torch.returns("rnn", "gru", normal(3, 4, 5, 6), normal(1, 4, 6), normal(4, 4, 6))
    torch.ends(normal(2, 3))
    names = mapped(rnn__w0="rnn__kernel", rnn__w1="rnn_1__kernel")
    for factor in (1.0, 1.1, -2.0):
        found = matching(torch, keras_half(Half("keras"), factor), names)
        assert pairs(found) == {"rnn#1": "rnn_1", "(model)": "(model)"}
        assert found.keras_alone == ["rnn"]


@pytest.mark.parametrize(("block", "layers"), [("block{}q", 1), ("q", 8), ("q", 2)])
def test_a_difference_that_died_out_before_a_fault_is_not_matched(block: str, layers: int) -> None:
    """The block around it is the same, or most of what follows is; or it may be where the fault is."""

    def model(half: Half) -> Half:
        torch = half.side == "torch"
        path = block.format("." if torch else "/")
        x = normal(0, 4, 6)
        for name in (path, *(f"l{layer}" for layer in range(layers)), "faulty"):
            half.owns(name, weight=(6, 6))
        half.returns(path, "linear", x if torch else 2 * x, given=(x,))
        if "{}" in block:
            half.returns("block", "Block", x + 1)
        for layer in range(layers):
            x = half.returns(f"l{layer}", "linear", x @ normal(layer + 1, 6, 6), given=(x,))
        half.ends(half.returns("faulty", "linear", x if torch else -x, given=(x,)))
        return half

    path = block.format("__")
    names = mapped(
        **{f"{name}__weight": f"{name}__weight" for name in (path, *(f"l{n}" for n in range(layers)), "faulty")}
    )
    found = pairs(matching(model(Half("torch")), model(Half("keras")), names))
    assert (block.format(".") in found) == (layers == 2)
    assert found["faulty"] == "faulty" and found["l0"] == "l0"


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
