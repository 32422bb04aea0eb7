"""Where windows lie on an image: the strides and paddings that fit what went in and what came out.

Padding is (top, bottom, left, right), as PyTorch's symmetric one, as SAME (the odd one at the bottom and
the right, or at the top and the left), or as rounding up.
"""

import itertools
from collections.abc import Iterator
from typing import Final

from parity.core.arrays import Array

MOST: Final = 8  # strides that are tried


def strides(size: int, count: int, window: int) -> list[int]:
    """Those with which `count` windows come from `size` pixels, the likeliest first."""
    fitting = [stride for stride in range(1, MOST + 1) if any(paddings((size,), (count,), (window,), stride))]
    return sorted(fitting, key=lambda stride: abs(stride - size / count))


def paddings(
    size: tuple[int, ...], count: tuple[int, ...], window: tuple[int, ...], stride: int
) -> Iterator[tuple[int, ...]]:
    """Those that fit, PyTorch's first: before and after, for each axis."""
    missing = [max((n - 1) * stride + w - s, 0) for s, n, w in zip(size, count, window, strict=True)]
    symmetric = itertools.product(*([(ends, ends) for ends in range(w)] for w in window))
    lower = tuple((m // 2, m - m // 2) for m in missing)
    upper = tuple((m - m // 2, m // 2) for m in missing)
    up = (tuple((ends, m - ends) for m in missing) for ends in range(max(window)))
    for ends in dict.fromkeys([*symmetric, lower, upper, *up]):
        axes = zip(size, ends, window, count, strict=True)
        if all(_fits(s, *pair, w, stride, n) for s, pair, w, n in axes):
            yield tuple(itertools.chain(*ends))


def _fits(size: int, before: int, after: int, window: int, stride: int, count: int) -> bool:
    return (
        min(before, after) >= 0
        and max(before, after) < window
        and ((size + before + after - window) // stride + 1 == count)
    )


def margins(x: Array, padding: tuple[int, ...]) -> list[tuple[int, int]]:
    """What np.pad adds to the last two axes."""
    top, bottom, left, right = padding
    return [(0, 0)] * (x.ndim - 2) + [(top, bottom), (left, right)]


def strided(x: Array, start: tuple[int, ...], count: tuple[int, ...], stride: int) -> Array:
    """The pixels at one place of every window."""
    (top, left), (rows, columns) = start, count
    return x[..., top : top + rows * stride : stride, left : left + columns * stride : stride]
