"""Let trainings take turns, a burst of steps each, until the ratio of their times is known."""

import time
from collections.abc import Sequence
from typing import NamedTuple

from parity.bench import energy
from parity.bench.lane import Lane
from parity.bench.statistics import Interval, interval

BURST = 0.2  # seconds of a burst at least: a step alone may be shorter than what its start and its end cost
WARM = 3  # bursts that do not count: memory, caches and clocks settle
ROUNDS = 6  # at least: no interval of fewer samples holds the true median in 95 of 100 measurements
ENOUGH = 0.05  # the width of an interval, as a part of the ratio


class Measured(NamedTuple):
    """The seconds of one step of a lane, one number for each round, and its ratio to the first lane's.

    `joules`: of one step, one number for each round; none where the machine does not tell them.
    """

    lane: Lane
    samples: list[float]
    ratio: Interval
    joules: list[float]


def measured(lanes: Sequence[Lane], seconds: float) -> list[Measured]:
    """Return the times of all lanes, which have begun, measured until all ratios are known to 5%.

    It ends after `seconds` at the latest, but not before six rounds. In a round each lane makes a burst, and each comes
    first as often as the others, so that whatever else the machine does slows down all alike: the ratios are those
    within a round. Raises UsageError and BackendError.
    """
    steps = [_steps(lane) for lane in lanes]
    samples: list[list[float]] = [[] for _ in lanes]
    joules: list[list[float]] = [[] for _ in lanes]
    order, deadline = list(range(len(lanes))), time.monotonic() + seconds
    while True:
        for number in order:
            before = energy.joules()
            samples[number].append(lanes[number].burst(steps[number]) / steps[number])
            if (taken := energy.taken(before, energy.joules())) is not None:
                joules[number].append(taken / steps[number])
        order.append(order.pop(0))
        ratios = [interval([own / first for own, first in zip(times, samples[0], strict=True)]) for times in samples]
        known = all(ratio.width < ENOUGH for ratio in ratios)
        if len(samples[0]) >= ROUNDS and (known or time.monotonic() > deadline):
            return [Measured(*parts) for parts in zip(lanes, samples, ratios, joules, strict=True)]


def _steps(lane: Lane) -> int:
    """Warm a lane up, and return how many of its steps a burst has."""
    taken = lane.burst(1)
    for _ in range(WARM):
        steps = max(round(BURST / taken), 1)
        taken = lane.burst(steps) / steps
    return max(round(BURST / taken), 1)
