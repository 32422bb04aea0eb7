"""Ops of a Keras call that can be done in another way: other orders of a reshape, a reshape for a transpose."""

import numpy as np
import pytest
from keras import ops

from keras_impl.experiment.operations import operations
from parity.diagnose.experiment.knobs import Knob

X = np.arange(2 * 3 * 4.0).reshape(2, 3, 4)


def found(call, is_paused: bool = False) -> list[Knob]:
    return operations(call, lambda: "place", lambda: is_paused)


def under(call, knob: Knob, text: str) -> np.ndarray:
    with knob.changed(text):
        return ops.convert_to_numpy(call())


def test_a_reshape_can_be_a_transpose() -> None:
    """As where a table of (length, batch) is made one of (batch, length) by reshaping."""

    def mixed():
        return ops.reshape(ops.convert_to_tensor(X), (3, 2, 4))

    (knob,) = found(mixed)
    assert (knob.name, knob.of, knob.value, knob.path) == ("order", "reshape", "reshape", "place")
    assert np.array_equal(under(mixed, knob, "axes 0 and 1 exchanged after it"), X.transpose(1, 0, 2))
    assert np.array_equal(mixed(), X.reshape(3, 2, 4))  # put back


def test_axes_can_be_exchanged_before_a_reshape() -> None:
    def flat():
        return ops.reshape(ops.convert_to_tensor(X), (2, 12))

    (knob,) = found(flat)
    assert np.array_equal(under(flat, knob, "axes 1 and 2 exchanged before it"), X.transpose(0, 2, 1).reshape(2, 12))


def test_a_transpose_can_be_a_reshape() -> None:
    def turned():
        return ops.transpose(ops.convert_to_tensor(X), (0, 2, 1))

    (knob,) = found(turned)
    assert np.array_equal(under(turned, knob, "reshape"), X.reshape(2, 4, 3))
    assert np.array_equal(under(turned, knob, "axes 0 and 1 exchanged after it"), X.transpose(2, 0, 1))


def test_of_several_calls_one_is_changed() -> None:
    def twice():
        first = ops.reshape(ops.convert_to_tensor(X), (2, 12))
        return ops.reshape(first, (2, 4, 3))

    _, second = found(twice)
    text = "axes 1 and 2 exchanged after it"
    assert np.array_equal(under(twice, second, text), X.reshape(2, 3, 4).transpose(0, 2, 1))


def test_all_calls_on_one_line_are_changed_together() -> None:
    """As where a function that rounds is called for queries and for keys."""

    def rounded(x):
        return ops.cast(ops.cast(x, "float16"), "float64")

    def call():
        x = ops.convert_to_tensor(X / 3)
        return rounded(x) + rounded(2 * x)

    knobs = [knob for knob in found(call) if knob.kind == "operation"]
    assert [np.array_equal(under(call, knob, "left out"), X / 3 + 2 * (X / 3)) for knob in knobs] == [
        False,
        False,
        True,
    ]
    assert knobs[-1].owner == "cast (2 of them)"


def test_what_is_paused_is_left_out() -> None:
    assert found(lambda: ops.reshape(ops.convert_to_tensor(X), (24,)), is_paused=True) == []


@pytest.mark.parametrize(
    ("dtype", "what", "kind"),
    [("float16", "float16", "precision"), ("bfloat16", "bfloat16", "precision"), ("int32", "dtype", "cast")],
)
def test_a_cast_that_rounds_can_be_left_out(dtype: str, what: str, kind: str) -> None:
    def rounded():
        return ops.cast(ops.cast(ops.convert_to_tensor(X / 7), dtype), "float64")

    (knob,) = found(rounded)  # the cast back rounds nothing
    assert (knob.name, knob.of, knob.value) == (what, kind, f"cast to {dtype}")
    assert np.array_equal(under(rounded, knob, "left out"), X / 7)
    assert not np.array_equal(rounded(), X / 7)


MASK, SQUARE = np.array([[True, False, True]]), np.arange(9.0).reshape(3, 3)


@pytest.mark.parametrize("mask", [MASK, np.repeat(MASK, 3, 0)])
def test_a_mask_can_lie_along_the_other_axis(mask: np.ndarray) -> None:
    def masked():
        return ops.where(ops.convert_to_tensor(mask), ops.convert_to_tensor(SQUARE), -1.0)

    (knob,) = [knob for knob in found(masked) if knob.of == "mask"]
    assert (knob.name, knob.value) == ("axis", "as it is")
    assert np.array_equal(under(masked, knob, "along the other axis"), np.where(MASK.T, SQUARE, -1.0))


@pytest.mark.parametrize("mask", [np.ones((1, 3), bool), np.tri(3, dtype=bool)])
def test_a_mask_that_is_the_same_along_both_axes_or_neither_has_no_other(mask: np.ndarray) -> None:
    knobs = found(lambda: ops.where(ops.convert_to_tensor(mask), ops.convert_to_tensor(SQUARE), -1.0))
    assert all(knob.of != "mask" for knob in knobs)


def test_what_is_padded_with_zeros_gets_other_widths() -> None:
    def padded():
        return ops.pad(ops.convert_to_tensor(X), [[0, 0], [1, 1], [0, 0]])

    (knob,) = found(padded)
    assert (knob.of, knob.value) == ("zero_padding", "1")
    assert np.array_equal(under(padded, knob, "(2, 0)"), np.pad(X, [(0, 0), (2, 0), (0, 0)]))
    assert found(lambda: ops.pad(ops.convert_to_tensor(X), [[0, 0], [1, 1], [0, 0]], mode="reflect")) == []
