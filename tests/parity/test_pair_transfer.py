"""What an entry does to values: DESIGN's example, every field, and that the way back is the inverse."""

import string
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pair_surveys import PAIR, Model
from pair_zoo import MODELS

from parity.core.errors import UsageError
from parity.pairs.weights import patterns
from parity.pairs.weights.patterns import reshapes
from parity.pairs.weights.propose import propose
from parity.pairs.weights.transfer import fits, gradients_to_torch, to_keras, to_torch
from parity.trace.mapping import Entry

Shape = tuple[int, ...]


def entry(torch: int, keras: int, **fields: Any) -> Entry:
    names = string.ascii_lowercase
    return Entry(torch=list(names[:torch]), keras=list(names[:keras]), **fields)


def counted(*shapes: Shape) -> list[np.ndarray]:
    """Arrays with no number twice."""
    ends = np.cumsum([int(np.prod(shape)) for shape in shapes])
    every = np.split(np.arange(ends[-1], dtype=np.float64), ends[:-1])
    return [part.reshape(shape) for part, shape in zip(every, shapes, strict=True)]


def test_the_example_of_the_readme() -> None:
    rule = entry(1, 3, rearrange="d (three heads k) -> three d heads k")
    (packed,) = counted((8, 24))
    parts = to_keras(rule, [packed], [(8, 4, 2)] * 3)
    for number, part in enumerate(parts):
        assert np.array_equal(part.reshape(8, 8), packed[:, 8 * number : 8 * number + 8])
    assert np.array_equal(to_torch(rule, parts, [(8, 24)])[0], packed)


# entry, torch's shapes, Keras's shapes, how Keras's first variable follows from torch's first two arrays
CASES: dict[str, tuple[Entry, list[Shape], list[Shape], Any]] = {
    "identity": (entry(1, 1), [(2, 3)], [(2, 3)], lambda a, b: a),
    "scalar": (entry(1, 1), [()], [()], lambda a, b: a),
    "transposed": (entry(1, 1, rearrange="o i -> i o"), [(2, 3)], [(3, 2)], lambda a, b: a.T),
    "ellipsis": (entry(1, 1, rearrange="o i ... -> ... i o"), [(2, 3, 4)], [(4, 3, 2)], lambda a, b: a.T),
    "new axis": (entry(1, 1, rearrange="c -> 1 1 c"), [(5,)], [(1, 1, 5)], lambda a, b: a[None, None]),
    "lost axis": (entry(1, 1, rearrange="1 p d -> p d"), [(1, 2, 3)], [(2, 3)], lambda a, b: a[0]),
    "cut": (entry(1, 2), [(6, 2)], [(3, 2)] * 2, lambda a, b: a[:3]),
    "cut to nothing": (entry(1, 2), [(2, 3)], [(3,)] * 2, lambda a, b: a[0]),
    "cut and keep": (
        entry(1, 2, rearrange="(n o) i -> (n i) o", sizes={"n": 2}),
        [(6, 1)],
        [(1, 3)] * 2,
        lambda a, b: a[:3].T,
    ),
    "interleaved": (
        entry(1, 2, rearrange="(h n k) -> n (h k)", sizes={"h": 2}),
        [(12,)],
        [(6,)] * 2,
        lambda a, b: a[[0, 1, 2, 6, 7, 8]],
    ),
    "joined": (entry(2, 1, rearrange="o i -> i o"), [(2, 3), (1, 3)], [(3, 3)], lambda a, b: np.concatenate([a, b]).T),
    "ordered": (entry(1, 1, order=[2, 0, 1]), [(3, 2)], [(3, 2)], lambda a, b: a[[2, 0, 1]]),
    "gates": (
        entry(1, 1, rearrange="(g h) i -> g h i", sizes={"g": 3}, order=[1, 0, 2], each="g h i -> i (g h)"),
        [(6, 4)],
        [(4, 6)],
        lambda a, b: a[[2, 3, 0, 1, 4, 5]].T,
    ),
    "both biases": (
        entry(2, 1, rearrange="(two g h) -> g two h", sizes={"g": 3}, order=[1, 0, 2], each="g two h -> two (g h)"),
        [(6,), (6,)],
        [(2, 6)],
        lambda a, b: np.stack([a[[2, 3, 0, 1, 4, 5]], b[[2, 3, 0, 1, 4, 5]]]),
    ),
    "each part": (entry(1, 2, each="o i -> i o"), [(4, 3)], [(3, 2)] * 2, lambda a, b: a[:2].T),
    "each without the first": (
        entry(1, 2, rearrange="(n o) i -> n o i", each="o i -> i o"),
        [(4, 3)],
        [(3, 2)] * 2,
        lambda a, b: a[:2].T,
    ),
    "copies": (entry(1, 2, combine="copy"), [(2, 3)], [(2, 3)] * 2, lambda a, b: a),
    "copies that stand differently": (
        entry(1, 2, combine="copy", rearrange="v d -> d v; ... -> ..."),
        [(2, 3)],
        [(3, 2), (2, 3)],
        lambda a, b: a.T,
    ),
    "sum": (entry(2, 1, combine="sum"), [(3,), (3,)], [(3,)], lambda a, b: a + b),
    "slice": (entry(1, 1, slice="2:"), [(5, 3)], [(3, 3)], lambda a, b: a[2:]),
    "slice of two axes": (
        entry(1, 1, slice=":-1, 1:3", rearrange="o i -> i o"), [(5, 4)], [(2, 4)], lambda a, b: a[:-1, 1:3].T,
    ),
    "slice of what is joined": (
        entry(2, 1, slice=":4"), [(2, 3), (4, 3)], [(4, 3)], lambda a, b: np.concatenate([a, b[:2]]),
    ),
    "unequal parts": (entry(1, 3, each="o i -> i o"), [(8, 3)], [(3, 4), (3, 2), (3, 2)], lambda a, b: a[:4].T),
    "unequal vectors": (entry(1, 2), [(5,)], [(3,), (2,)], lambda a, b: a[:3]),
    "unequal parts, ordered": (entry(1, 2, order=[2, 1, 0]), [(3, 2)], [(1, 2), (2, 2)], lambda a, b: a[2:]),
    "unequal parts by group": (
        entry(1, 3, rearrange="(g n k) i -> n g k i", each="n g k i -> i (g n k)", sizes={"g": 2, "k": 3}),
        [(24, 5)],
        [(5, 12), (5, 6), (5, 6)],
        lambda a, b: a.reshape(2, 4, 3, 5)[:, :2].reshape(12, 5).T,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_there_and_back(name: str) -> None:
    rule, ours, theirs, expected = CASES[name]
    arrays = counted(*ours)
    values = to_keras(rule, arrays, theirs)
    assert [value.shape for value in values] == theirs and all(value.flags.c_contiguous for value in values)
    assert np.array_equal(values[0], expected(arrays[0], arrays[-1]))
    back = to_torch(rule, values, ours, arrays)
    assert [array.shape for array in back] == ours and all(map(np.array_equal, back, arrays))


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_the_transposed_map(name: str) -> None:
    """<keras(x), g> = <x, torch(g)> for all x, g."""
    rule, ours, theirs, _ = CASES[name]
    arrays, gradients = counted(*ours), counted(*theirs)
    moved = zip(to_keras(rule, arrays, theirs), gradients, strict=True)
    back = zip(arrays, gradients_to_torch(rule, gradients, ours), strict=True)
    assert sum(np.sum(a * b) for a, b in moved) == sum(np.sum(a * b) for a, b in back)


def test_outside_of_a_slice_initial_values_remain() -> None:
    rule, (start,) = entry(1, 1, slice="2:"), counted((5, 3))
    (back,) = to_torch(rule, [start[2:] + 1], [(5, 3)], [start])
    assert np.array_equal(back[:2], start[:2]) and np.array_equal(back[2:], start[2:] + 1)
    (gradient,) = gradients_to_torch(rule, [start[2:]], [(5, 3)])
    assert not gradient[:2].any() and np.array_equal(gradient[2:], start[2:])
    with pytest.raises(UsageError, match="a slice cannot be converted back to torch without the initial values"):
        to_torch(rule, [start[2:]], [(5, 3)])


def test_a_square_is_of_what_is_not_trained() -> None:
    rule, (deviation,) = entry(1, 1, combine="square", rearrange="c 1 -> c"), counted((3, 1))
    (variance,) = to_keras(rule, [deviation], [(3,)])
    assert np.array_equal(variance, deviation[:, 0] ** 2)
    assert np.array_equal(to_torch(rule, [variance], [(3, 1)])[0], deviation)
    with pytest.raises(UsageError, match="these weights are trained"):
        gradients_to_torch(rule, [variance], [(3, 1)])


def test_of_a_sum_the_first_takes_what_changed() -> None:
    rule = entry(2, 1, combine="sum")
    start = counted((3,), (3,))
    back = to_torch(rule, [sum(start) + 1], [(3,), (3,)], start)
    assert np.array_equal(back[0], start[0] + 1) and np.array_equal(back[1], start[1])
    with pytest.raises(UsageError, match="without the initial values"):
        to_torch(rule, [start[0]], [(3,), (3,)])


@pytest.mark.parametrize(
    ("rule", "torch", "keras", "message"),
    [
        (entry(1, 1), [(2, 3)], [(3, 2)], r"shapes \(2, 3\) do not become \(3, 2\)"),
        (entry(1, 1, rearrange="o i -> i o"), [(2, 3)], [(2, 3)], "by 'o i -> i o'"),
        (entry(1, 1, rearrange="o i -> i"), [(2, 3)], [(3,)], "other axes on its left"),
        (entry(1, 1, rearrange="o o -> o o"), [(2, 2)], [(2, 2)], "names an axis twice"),
        (entry(1, 1, rearrange="o i"), [(2, 3)], [(2, 3)], "expected 'axes -> axes'"),
        (entry(1, 1, rearrange="(o i -> o i"), [(2, 3)], [(2, 3)], "brackets do not close"),
        (entry(1, 1, rearrange="(a b) c -> (b a) c"), [(6, 2)], [(6, 2)], "a and b does not follow: give it in sizes"),
        (entry(1, 1, rearrange="(a b) -> a b", sizes={"a": 4}), [(6,)], [(4, 2)], "b"),
        (entry(1, 2), [(5,)], [(2,), (2,)], "expected 4"),
        (entry(1, 2), [(6,)], [(2,), (3,)], "expected 5"),
        (entry(1, 2), [(5, 2)], [(2, 2), (3, 1)], "differ in more than the first axis"),
        (entry(1, 2, rearrange="(n k) -> n k", each="k -> k"), [(6,)], [(2,), (3,)], "must begin with the 2 axes"),
        (entry(1, 2, each="o i -> i (o k)"), [(5, 2)], [(2, 2), (2, 3)], "other axes on its left"),
        (entry(1, 2, each="o (a b) -> (o a) b"), [(5, 6)], [(4, 3), (6, 3)], "give it in sizes"),
        (entry(1, 1, slice="2:"), [(5, 2)], [(5, 2)], "by slice '2:'"),
        (entry(1, 1, slice=":, :, 1:"), [(5, 2)], [(5, 2)], "has 3 axes, but torch's weight has 2"),
        (entry(1, 1, slice="9:"), [(5, 2)], [(5, 2)], "leaves nothing"),
        (entry(1, 1, order=[0, 0]), [(2,)], [(2,)], "no permutation"),
        (entry(2, 1), [(2, 3), (2, 4)], [(4, 3)], "joined along their first axis"),
        (entry(2, 1, combine="sum"), [(2,), (3,)], [(2,)], "a sum is of equal shapes"),
        (entry(2, 2, combine="copy"), [(2,), (2,)], [(2,), (2,)], "copies are of one torch weight"),
        (entry(1, 2, combine="copy", rearrange="a -> a;a -> a;a -> a"), [(2,)], [(2,)] * 2, "received 3 patterns"),
    ],
)
def test_what_does_not_fit_is_told_in_one_line(
    rule: Entry, torch: list[Shape], keras: list[Shape], message: str
) -> None:
    assert not fits(rule, torch, keras)
    with pytest.raises(UsageError, match=message) as error:
        to_keras(rule, counted(*torch), keras)
    assert "weights a" in str(error.value) and "\n" not in str(error.value)


@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=4).flatmap(
        lambda sizes: st.tuples(st.just(sizes), st.permutations(range(len(sizes))))
    )
)
def test_every_way_that_is_found_is_a_bijection(drawn: tuple[list[int], list[int]]) -> None:
    shape, axes = tuple(drawn[0]), drawn[1]
    (array,) = counted(shape)
    wanted = array.transpose(axes)
    ways = [entry(1, 1, rearrange=pattern) for pattern in reshapes(shape, wanted.shape)]
    found = [to_keras(way, [array], [wanted.shape])[0] for way in ways]
    assert all(
        np.array_equal(to_torch(way, [value], [shape])[0], array) for way, value in zip(ways, found, strict=True)
    )
    assert len(found) == len({value.tobytes() for value in found}), "two ways that do the same"
    few = len([size for size in shape if size > 1]) < 4
    assert not few or any(np.array_equal(value, wanted) for value in found)


@given(st.permutations(["a", "b", "c", "d"]), st.integers(1, 3))
def test_axes_may_be_merged(order: list[str], end: int) -> None:
    sizes = dict(zip("abcd", (2, 3, 4, 5), strict=True))
    right = f"({' '.join(order[:end])}) {' '.join(order[end:])}"
    pattern = f"a b c d -> {right}"
    shape = tuple(int(np.prod([sizes[name] for name in group])) for group in patterns.split_sides(pattern)[1])
    (array,) = counted((2, 3, 4, 5))
    (value,) = to_keras(entry(1, 1, rearrange=pattern), [array], [shape])
    assert np.array_equal(value.reshape(-1), np.einsum(f"abcd->{''.join(order)}", array).reshape(-1))


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS.keys())
def test_every_automatic_entry_is_a_bijection(model: Model) -> None:
    shapes = [{weight.name: weight.shape for weight in survey.weights} for survey in (model.torch, model.keras)]
    proposal = propose(model.torch, model.keras, PAIR)
    every = [one for ambiguity in proposal.ambiguities for choice in ambiguity.choices for one in choice]
    for one in [*proposal.mapping.entries, *every]:
        ours, theirs = ([shapes[side][name] for name in names] for side, names in enumerate((one.torch, one.keras)))
        arrays = counted(*ours)
        back = to_torch(one, to_keras(one, arrays, theirs), ours, arrays)
        assert all(map(np.array_equal, back, arrays)), one


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("o i -> i o", False),
        ("(h k) d -> d h k", False),
        ("d (three heads k) -> three d heads k", False),
        ("o (c h w) -> (h w c) o", True),
        ("(h three k) d -> three d h k", True),
    ],
)
def test_a_pattern_may_reorder_the_numbers_of_an_axis(pattern: str, expected: bool) -> None:
    assert patterns.reorders(pattern) == expected
