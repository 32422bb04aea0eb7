"""Place the windows of convolution and pooling: the strides and paddings that fit the input's and output's shapes.

Padding is (top, bottom, left, right). The candidates are PyTorch's symmetric padding, SAME (with the odd pixel at the
bottom and right, or at the top and left), and padding that is added to round the number of windows up.
"""

import itertools
from collections.abc import Iterator
from typing import Final

from parity.core.arrays import Array

MOST: Final = 8  # largest stride that is tried


def strides(size: int, count: int, window: int) -> list[int]:
    """Return the strides with which `count` windows fit into `size` pixels, the likeliest first."""
    fitting = [stride for stride in range(1, MOST + 1) if any(paddings((size,), (count,), (window,), stride))]
    return sorted(fitting, key=lambda stride: abs(stride - size / count))


def paddings(
    size: tuple[int, ...], count: tuple[int, ...], window: tuple[int, ...], stride: int
) -> Iterator[tuple[int, ...]]:
    """Yield the paddings that fit, PyTorch's symmetric ones first: before and after, for each axis in turn.

    Args:
        size: the pixels along each axis of the input.
        count: the windows along each axis, which is the size of the output.
        window: the size of the window, gaps of dilation included.
        stride: the distance of two windows, the same along all axes.
    """
    missing = [max((n - 1) * stride + w - s, 0) for s, n, w in zip(size, count, window, strict=True)]
    symmetric = itertools.product(*([(ends, ends) for ends in range(w)] for w in window))
    lower = tuple((m // 2, m - m // 2) for m in missing)
    upper = tuple((m - m // 2, m // 2) for m in missing)
    rounding_up = (tuple((ends, m - ends) for m in missing) for ends in range(max(window)))
    for ends in dict.fromkeys([*symmetric, lower, upper, *rounding_up]):
        axes = zip(size, ends, window, count, strict=True)
        if all(_fits(s, *pair, w, stride, n) for s, pair, w, n in axes):
            yield tuple(itertools.chain(*ends))


def _fits(size: int, before: int, after: int, window: int, stride: int, count: int) -> bool:
    """Return whether a padding gives exactly `count` windows along an axis, none of them wholly in the padding."""
    return (
        min(before, after) >= 0
        and max(before, after) < window
        and ((size + before + after - window) // stride + 1 == count)
    )


def margins(x: Array, padding: tuple[int, ...]) -> list[tuple[int, int]]:
    """Return the `pad_width` for np.pad that pads the last two axes."""
    top, bottom, left, right = padding
    return [(0, 0)] * (x.ndim - 2) + [(top, bottom), (left, right)]


def strided(x: Array, start: tuple[int, ...], count: tuple[int, ...], stride: int) -> Array:
    """Return, of every window, the pixel at offset `start` in it."""
    (top, left), (rows, columns) = start, count
    return x[..., top : top + rows * stride : stride, left : left + columns * stride : stride]
