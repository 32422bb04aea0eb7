"""Other ways to do what single ops of a framework do: where windows lie, and in which order numbers and parts stand.

No argument of PyTorch's layers says these: a padding that differs at both ends of an axis, as TensorFlow's "same" does,
zeros that count in a maximum, a reshape where the other side transposes, parts that are joined in another order. So the
op is done in the other way, in the running process, while its module is called again.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, NamedTuple

from parity.core.groups import grouped
from parity.diagnose.experiment.knobs import Knob

SAME, ODD_FIRST, VALID = "same", "same, the odd one first", "valid"
RULES: Final = (SAME, ODD_FIRST, VALID)  # that hold for any image
COUNTED: Final = ", of zeros that count"  # behind the padding of a maximum
# What can be another.
PADDING, ORDER, FUNCTION, SUM, NORMALISATION = "padding", "order", "function", "sum", "normalisation"
LEFT_OUT: Final = "left out"
FIRST, SECOND = "the first alone", "the second alone"  # of two that are added or multiplied
EXCHANGED: Final = "the two exchanged"  # of two that are subtracted, or between which a mask chooses
OF_TWO: Final = (("a - b", "b - a"), ("where(mask, a, b)", "where(mask, b, a)"))  # a difference, a choice
RESHAPE, TRANSPOSE = "reshape", "transpose"
PAD, ZERO_PADDING = "pad", "zero_padding"
LAYERS, IN_PLACE, BEHIND = "layers", "where it is called", "behind"  # of what is called before or behind another
JOIN, SPLIT, HALVES, NORMALIZE = "concatenation", "split", "halves", "normalize"
# The kinds of what a loss can do in other ways.
OF_LOSS: Final = ("loss", "cross_entropy", "smooth_l1_loss", NORMALIZE, "gather", LAYERS)
# The sign that is written for a function of two tensors, and the function that does what a sign means.
SIGNS: Final = {
    "add": "+",
    "subtract": "-",
    "multiply": "*",
    "divide": "/",
    "true_divide": "/",
    "floor_divide": "//",
    "power": "**",
    "matmul": "@",
    "mod": "%",
}
BY_SIGN: Final = {sign: name for name, sign in reversed(SIGNS.items())}
MOST: Final = 16  # paddings that are tried for one op
Margins = tuple[tuple[int, int], ...]  # for each axis of the image: before and after


class Operation(NamedTuple):
    """A call of a function that can be done in other ways."""

    name: str  # the function's name
    number: int  # the call's number among those of the function
    what: str  # what can be another
    kind: str  # the kind of layer that does such a thing
    before: str  # how it is done
    ways: Mapping[str, Any]  # the other ways, by the text that tells them
    source: str = ""  # "file:line" of the user's code that calls it
    path: str = ""  # the path of the innermost module that is being called
    also: "Calls" = {}  # ways of other calls, which go with each of its own


Calls = Mapping[tuple[str, int], Any]  # ways, by the names and numbers of calls


def knobs(operations: Sequence[Operation], doing: Callable[[Calls], AbstractContextManager[Any]]) -> Iterator[Knob]:
    """Yield the change of each call, of all calls on one line, and of all that are alike in the module.

    These are all windows of one kind, to the same rule, and all calls of one function. A line is run several times
    where its function is, as for queries and keys.

    `doing`: a context manager within which calls are done in these ways.
    """
    with_line = (each for each in operations if each.source)
    on_lines = grouped(with_line, lambda each: (each.source, each.name, each.what, each.before))
    windows = grouped((each for each in operations if each.what == PADDING), lambda each: each.kind)
    joint = (each for each in operations if each.kind in (HALVES, NORMALIZE))
    halves = grouped(joint, lambda each: (each.kind, each.before))
    functions = grouped((each for each in operations if each.what == FUNCTION), lambda each: each.name)
    spread = [alike for alike in functions.values() if len({each.source for each in alike}) > 1 or not alike[0].source]
    by_texts = [(None, on_lines.values()), (RULES, windows.values()), (None, halves.values()), ((LEFT_OUT,), spread)]
    for operation in operations:
        yield _knob([operation], tuple(operation.ways), doing)
    for texts, groups in by_texts:
        for alike in groups:
            if len(alike) > 1:
                yield _knob(alike, texts or tuple(alike[0].ways), doing)


def _knob(
    alike: Sequence[Operation], texts: tuple[str, ...], doing: Callable[[Calls], AbstractContextManager[Any]]
) -> Knob:
    def changed(text: Any) -> AbstractContextManager[Any]:
        chosen = [each for each in alike if text in each.ways]
        others = dict(item for each in chosen for item in each.also.items())
        return doing({(each.name, each.number): each.ways[text] for each in chosen} | others)

    first = alike[0]
    owner = f"{first.name} ({len(alike)} of them)" if len(alike) > 1 else first.name
    return Knob(first.what, owner, first.source, first.before, "operation", changed, texts, first.kind, first.path)


class Axis(NamedTuple):
    """One axis of an image on which windows are laid."""

    size: int  # its length
    window: int  # the extent of a window, gaps of dilation included
    stride: int  # the distance of two windows
    before: int  # how much is padded, or cropped by a transposed convolution, before the first element
    after: int  # how much behind the last


def paddings(axes: Sequence[Axis], is_transposed: bool = False) -> dict[str, Margins]:
    """Return other paddings of an op, likely ones first, by text; a transposed convolution's can only be cropped."""
    present, widths = padding(axes), range(max(axis.window for axis in axes))
    totals = [sum(pair) for pair in present]
    halves = _halves(totals) if is_transposed else same(axes)
    rules = {SAME: halves, ODD_FIRST: tuple((after, before) for before, after in halves)}
    if is_transposed:
        ends = [tuple((before, total - before) for total in totals) for before in widths]
    else:
        rules[VALID] = ((0, 0),) * len(axes)
        pairs = sorted(itertools.product(widths, repeat=2), key=lambda pair: abs(sum(pair) - totals[0]))
        ends = [((before, after),) * len(axes) for before, after in pairs]
    by_text = rules | {told(margins): margins for margins in ends[:MOST]}
    return {text: margins for text, margins in by_text.items() if margins != present}


def widths(present: Margins) -> dict[str, Margins]:
    """Return other margins than the present ones, the nearest first, by the text that tells them.

    They differ from them by the same number at the same end of each axis that is padded, or all is at one end.
    """
    steps = sorted(itertools.product(range(-2, 3), repeat=2), key=lambda step: (abs(sum(step)), abs(step[0])))
    changed = [tuple((b + x, a + y) if b or a else (b, a) for b, a in present) for x, y in steps]
    changed[:0] = [tuple((a + b, 0) for b, a in present), tuple((0, a + b) for b, a in present)]
    good = (margins for margins in changed if margins != present and all(min(pair) >= 0 for pair in margins))
    return {told(margins): margins for margins in good}


def padding(axes: Sequence[Axis]) -> Margins:
    """Return how the image is padded."""
    return tuple((axis.before, axis.after) for axis in axes)


def told(margins: Margins) -> str:
    """Return margins in words: "1", or "(0, 1)" for what is before and after, for each axis where axes differ."""
    texts = [str(before) if before == after else f"({before}, {after})" for before, after in margins]
    return texts[0] if len(set(texts)) == 1 else ", ".join(texts)


def same(axes: Sequence[Axis]) -> Margins:
    """Return TensorFlow's SAME: as many windows as strides begin in the image; an odd element is behind the last.

    A transposed convolution is cropped as the convolution is padded of which it is the gradient.
    """
    windows = [-(-axis.size // axis.stride) for axis in axes]
    missing = [(n - 1) * axis.stride + axis.window - axis.size for n, axis in zip(windows, axes, strict=True)]
    return _halves(missing)


def _halves(totals: Sequence[int]) -> Margins:
    return tuple((max(total, 0) // 2, total - max(total, 0) // 2) for total in totals)


class Order(NamedTuple):
    """Another order in which a reshape can leave the numbers: that of the axes before it, or after it, in words too."""

    is_before: bool
    axes: tuple[int, ...]
    text: str


def orders(before: Sequence[int], after: Sequence[int]) -> list[Order]:
    """Return the orders in which a reshape from one shape to another can leave the numbers, but for the plain one."""
    variants, count = [_exchange(False, len(after), *axes) for axes in _exchanges(after)], len(before)
    if count != len(after):
        variants += [_exchange(True, count, *axes) for axes in _exchanges(before)]
    if count > 3 and count != len(after):  # as of an image's axes
        last, first = (0, *range(2, count), 1), (0, count - 1, *range(1, count - 1))
        variants[:0] = [Order(True, last, "channels last before it"), Order(True, first, "channels first before it")]
    return variants


def _exchange(is_before: bool, count: int, first: int, second: int) -> Order:
    text = f"axes {first} and {second} exchanged {'before' if is_before else 'after'} it"
    return Order(is_before, tuple(exchanged(count, first, second)), text)


def arrangements(count: int) -> dict[str, tuple[int, ...]]:
    """Return other orders of so many parts, by text: in turn or in reverse, of more than three first; two exchanged."""
    pairs = itertools.combinations(range(count), 2)
    by_text = {f"parts {a} and {b} exchanged": tuple(exchanged(count, a, b)) for a, b in pairs}
    plain = tuple(range(count))
    turns = [(*plain[1:], plain[0]), (plain[-1], *plain[:-1]), plain[::-1]]
    turned = {f"parts {', '.join(map(str, turn))}": turn for turn in turns if turn not in by_text.values()}
    return dict(list((turned | by_text if count > 3 else by_text | turned).items())[:MOST])


def _exchanges(shape: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the pairs of axes that hold more than one number, neighbours first."""
    pairs = itertools.combinations([axis for axis, size in enumerate(shape) if size > 1], 2)
    yield from sorted(pairs, key=lambda pair: pair[1] - pair[0])


def exchanged(count: int, first: int, second: int) -> list[int]:
    """Return the order of so many axes, of which two are exchanged."""
    axes = list(range(count))
    axes[first], axes[second] = second, first
    return axes
