"""Tell whether two builders draw a table from one distribution, from what they give with many seeds.

Of every build the same numbers are taken: mean, root mean square and two that describe the shape, of the whole table
and of every slice of it; the angles between its rows and between its columns; and the elements themselves. A rank test
compares torch's n values of a number with Keras's n, and how far both lie from their common median, so that a wider
spread is seen too.

The test is that of Mann and Whitney ("On a Test of Whether one of Two Random Variables is Stochastically Larger than
the Other", Annals of Mathematical Statistics 18, 1947). U counts the pairs of a build of torch's and one of Keras's in
which a given side's number is not the larger. If both sides draw from one distribution, all orders of the 2n builds are
equally likely, whatever that distribution is and however the elements of a table depend on each other. So the chance of
U <= u is exactly the sum of the first coefficients of a Gaussian binomial over C(2n, n). Equal values count as not
larger, by which U is no smaller than in an order without ties. Where they are many, as of a mask, Fisher's exact test
sees more ("The Logic of Inductive Inference", Journal of the Royal Statistical Society 98, 1935): of all builds whose
number is not the median, each side has as many as chance gives it, the hypergeometric distribution. For n = 32 the
smallest chance is 5e-19, which leaves room for FALSE_ALARM to be shared by all tests of a pair (Bonferroni): first by
its tables, then by the levels of a table, then by the numbers of a level. A factor of 2 pi in 8 normal numbers, or 1.5
in 64, is found practically always; with n = 96, a factor of 1.4 in 8.
"""

import math
from collections.abc import Iterable, Iterator
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from parity.core.arrays import Floats

DRAWS, MORE = 32, 96  # builds of each side; of small tables in models that are no large ones
SMALL, LARGE = 64, 1 << 20  # numbers of such a table, and of all tensors of such a model
FALSE_ALARM = 1e-9  # the chance that any table of a pair is said to differ although both sides' are drawn alike
ROUNDING = 2.0**-22  # numbers this close, relative to the values that they are of, are equal
ROWS = 256  # rows whose angles are compared; of more, as many evenly spaced ones
MOST = 1 << 16  # elements that are compared one by one; of more, as many evenly spaced ones
NUMBERS = ("root mean square", "mean", "mean absolute value by root mean square", "largest absolute value by the same")
ANGLES = ("mean absolute cosine between rows", "mean absolute cosine between columns")


class Contrast(NamedTuple):
    """A number in which the draws of both sides differ: its range over the builds of each side.

    `axis` and `number` say of which slice it is; for the whole table both are None, for an element (`number` counts
    them in row-major order) only `axis` is.
    """

    torch: str
    keras: str
    axis: int | None = None
    number: int | None = None


class _Level(NamedTuple):
    """Numbers of one build, [number, slice], their names, and how large the values are that they are of."""

    names: tuple[str, ...]
    numbers: Floats
    sizes: Floats
    axis: int | None = None  # that of the slices
    step: int | None = None  # of the elements, which are their own only number, every so many are taken


def builds(table: int, model: int) -> int:
    """Return how often both sides are built: more for a small table, which tells little, but not of a large model."""
    return MORE if table <= SMALL and model < LARGE else DRAWS


def contrast(torch: Iterable[Floats], keras: Iterable[Floats], tables: int) -> Contrast | None:
    """Return a number in which torch's builds differ from Keras's, or None; `tables`: how many are compared in all."""
    ours, theirs = ([list(_levels(np.atleast_1d(table))) for table in side] for side in (torch, keras))
    levels = list(zip(zip(*ours, strict=True), zip(*theirs, strict=True), strict=True))
    contrasts = (_clearest(*level, FALSE_ALARM / tables / len(levels)) for level in levels)
    return next(filter(None, contrasts), None)


def _levels(table: Floats) -> Iterator[_Level]:
    """Yield the numbers of the whole table, of its slices along each axis, their angles, and its elements."""
    axes = range(table.ndim)
    size = np.abs(table)
    for axis in (None, *(axis for axis in axes if table.ndim > 1 and table.shape[axis] > 1)):
        inner = tuple(each for each in axes if each != axis)
        rms = np.sqrt(np.square(table).mean(inner)).reshape(-1)
        scale = np.where(rms > 0, rms, 1)
        shape = [part.reshape(-1) / scale for part in (size.mean(inner), size.max(inner))]
        numbers = [rms, table.mean(inner).reshape(-1), *shape]
        yield _Level(NUMBERS, np.stack(numbers), np.stack([rms, rms, *[np.ones_like(rms)] * 2]), axis)
    if table.ndim > 1:
        angles = np.array([[_cosine(table)], [_cosine(np.moveaxis(table, -1, 0))]])
        yield _Level(ANGLES, angles, np.ones_like(angles))
    step = -(-table.size // MOST)
    elements = table.reshape(1, -1)[:, ::step]
    yield _Level(("value",), elements, np.abs(elements), step=step)


def _cosine(table: Floats) -> float:
    """Return the mean absolute cosine of the angle between two rows; rows of zeros are at right angles to all."""
    rows = table.reshape(len(table), -1)[:: -(-len(table) // ROWS)]
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    rows = rows / np.where(length > 0, length, 1)
    cosines = np.abs(rows @ rows.T)
    return float((cosines.sum() - np.trace(cosines)) / max(1, len(rows) * (len(rows) - 1)))


def _clearest(torch: tuple[_Level, ...], keras: tuple[_Level, ...], chance: float) -> Contrast | None:
    """Return the number of a level that differs most clearly, if it does so within the chance of a false alarm."""
    ours, theirs = (np.stack([each.numbers for each in side]) for side in (torch, keras))
    close = ROUNDING * np.max([each.sizes for each in (*torch, *keras)], axis=0)
    middle = np.median([*ours, *theirs], axis=0)
    off = np.abs(ours - middle), np.abs(theirs - middle)
    lost = np.minimum(_lost(ours, theirs, close), _lost(*off, close))
    counts = [(side > close).sum(0) for side in off]
    chance /= 6 * lost.size  # three tests of each number, all of two sides
    seen = (lost <= critical(len(ours), chance)) | _is_uneven(counts[0], counts[1], len(ours), chance)
    if not seen.any():
        return None
    first = np.where(seen, lost, np.inf).argmin()
    kind, number = (int(each) for each in np.unravel_index(first, lost.shape))
    axis, step = torch[0].axis, torch[0].step
    ours_said, theirs_said = (_said(torch[0].names[kind], side[:, kind, number]) for side in (ours, theirs))
    is_whole = axis is None and not step
    return Contrast(ours_said, theirs_said, axis, None if is_whole else number * (step or 1))


def _lost(torch: Floats, keras: Floats, close: Floats) -> Floats:
    """Return of each number the smaller U of both sides: the pairs of builds in which theirs is not the larger."""
    pairs = len(torch) * len(keras)
    won = [
        np.sum([(build > few + close).sum(0) for build in many], 0) for many, few in ((torch, keras), (keras, torch))
    ]
    lost: Floats = pairs - np.maximum(*won)
    return lost


def _is_uneven(ours: Floats, theirs: Floats, draws: int, chance: float) -> NDArray[np.bool_]:
    """Return where so many of each side's builds differ from the median as has at most this chance."""
    pairs, inverse = np.unique(
        np.stack([np.minimum(ours, theirs).ravel(), (ours + theirs).ravel()]), axis=1, return_inverse=True
    )

    def tail(few: int, both: int) -> float:  # the chance that a given side has at most `few` of `both` builds
        ways = sum(math.comb(both, each) * math.comb(2 * draws - both, draws - each) for each in range(few + 1))
        return ways / math.comb(2 * draws, draws)

    uneven = [tail(int(few), int(both)) <= chance for few, both in pairs.T]
    return np.array(uneven)[inverse].reshape(ours.shape)


def _said(name: str, values: Floats) -> str:
    """Return a number's name with its range."""
    low, high = (f"{float(end):.4g}" for end in (values.min(), values.max()))
    return f"{name} {low}" if low == high else f"{name} {low} to {high}"


@cache
def critical(draws: int, chance: float) -> int:
    """Return the largest u for which U <= u has at most this chance; -1 if there is none."""
    orders, below = math.comb(2 * draws, draws), 0
    for u, count in enumerate(_orders(draws)):
        below += count
        if below > chance * orders:
            return u - 1
    return draws * draws


@cache
def _orders(draws: int) -> list[int]:
    """Return how many orders of 2n numbers have U = 0, 1, 2...: the coefficients of the Gaussian binomial."""
    counts = [1] + [0] * (draws * draws)
    for factor in range(1, draws + 1):
        for u in range(draws * draws, draws + factor - 1, -1):
            counts[u] -= counts[u - draws - factor]
        for u in range(factor, draws * draws + 1):
            counts[u] += counts[u - factor]
    return counts
