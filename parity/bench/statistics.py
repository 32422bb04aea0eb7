"""What repeated measurements say: the median, its spread, and how far a ratio of two medians can be trusted."""

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

CONFIDENCE = 0.95


class Interval(NamedTuple):
    """An interval that holds the true median in 95 of 100 measurements, around the measured one."""

    low: float
    middle: float
    high: float

    @property
    def width(self) -> float:
        """Return its width, as a part of the middle."""
        return (self.high - self.low) / self.middle


def interval(samples: Sequence[float]) -> Interval:
    """Return the median of the samples with its confidence interval, from their order alone.

    Of n samples the k smallest lie below the true median as often as k of n throws of a coin show heads; no assumption
    is made about their distribution (W. J. Conover, Practical Nonparametric Statistics, 3rd edition, section 3.2). It
    takes six samples at least; that of fewer reaches from the smallest to the largest, and is less sure.
    """
    ordered, count = sorted(samples), len(samples)
    below, tail = 0, 0.0
    while below < count // 2 and (tail := tail + math.comb(count, below) / 2**count) <= (1 - CONFIDENCE) / 2:
        below += 1
    first = max(below - 1, 0)
    return Interval(ordered[first], statistics.median(ordered), ordered[count - 1 - first])


def quartiles(samples: Sequence[float]) -> tuple[float, float]:
    """Return the first and the third quartile of the samples."""
    if len(samples) == 1:
        return samples[0], samples[0]
    first, _, third = statistics.quantiles(samples, n=4, method="inclusive")
    return first, third
