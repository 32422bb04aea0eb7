"""Say how two schedules of the learning rate differ, by the rates with which both sides have made their steps.

An optimizer's formula, or how far the parameters move, tells the rates of one step. Those of all steps tell more: that
one side is some steps ahead, that a rate stays, or where the cosines of both end and after how many steps.
"""

import math
from collections.abc import Iterator
from functools import partial
from typing import Final

import numpy as np
from msgspec.structs import replace

from parity.core.arrays import Array
from parity.core.wording import count
from parity.diagnose.experiment.ratios import RESCALED
from parity.diagnose.solve import multiple
from parity.results import CaseResult, Cause
from parity.trace.manifest import Trace
from parity.trace.training import Training

OFFSET, END, LENGTH, FACTOR = "schedule.offset", "schedule.end", "schedule.length", "schedule.factor"
LEARNING_RATE: Final = ".learning_rate"
FEWEST: Final = 4  # rates of a curve of two unknowns, beside the first, one of which confirms it
LONGEST: Final = 1000  # steps of a cosine: the first rates of a longer one are too near to each other
WHOLE: Final = 1e-5  # relative, how near a number of steps is to a whole one
same = partial(math.isclose, rel_tol=1e-6)  # Keras may compute a schedule in float32


def name_schedules(result: CaseResult, torch: Trace, keras: Trace) -> None:
    """Name what the rates of all steps tell, in place of causes that have those of the first step that differs."""
    mine, theirs = (_used(trace.manifest.training) for trace in (torch, keras))
    if mine.shape == theirs.shape and len(at := np.flatnonzero(~np.array([*map(same, mine, theirs)], bool))):
        result.causes = [told for each in result.causes for told in [*_told(each, mine, theirs, at)] or [each]]


def _used(training: Training) -> Array:
    """Return the rates of the updates, and that of the next one; none where one is no number."""
    rates = [rate for step, rate in enumerate(training.rates) if step not in training.waiting]
    return np.array([] if None in rates else rates, np.float64)


def _told(cause: Cause, mine: Array, theirs: Array, differing: Array) -> Iterator[Cause]:
    """Yield the causes in place of one that has the rates of one step; none in place of any other."""
    numbers = [number for number in (cause.torch, cause.keras) if isinstance(number, float)]
    is_rate = len(numbers) == 2 and (cause.id == RESCALED or cause.id.endswith(LEARNING_RATE))
    # A group of parameters may have a rate of its own, which is another cause.
    if not is_rate or not any(same(numbers[1] * mine[step], numbers[0] * theirs[step]) for step in differing):
        return
    early = _ahead(mine, theirs, differing)
    if any(_stays(rates[-2:]) for rates in (mine, theirs)):  # the last may be set later
        early = early or _ahead(mine[:-1], theirs[:-1], differing[:-1])
    # What another learning rate would do as well is no offset.
    if early and not multiple(mine, theirs):
        order = "later" if early > 0 else "earlier"
        evidence = f"keras makes its steps with the rates that torch has {count(abs(early), 'step')} {order}"
        yield replace(cause, id=OFFSET, torch=0, keras=early, evidence=evidence)
        return
    for curve, of in (("a cosine", _cosine), ("a power", _power)):
        torch, keras = of(mine), of(theirs)
        if same(mine[0], theirs[0]) and torch and keras:
            evidence = f"both sides' rates are those of {curve} that begins with {mine[0]:.6g}"
            apart = [id_ for id_ in torch if torch[id_] != keras[id_]]
            yield from (replace(cause, id=id_, torch=torch[id_], keras=keras[id_], evidence=evidence) for id_ in apart)
            return
    still = [side for side, rates in (("torch", mine), ("keras", theirs)) if _stays(rates)]
    words = f"{still[0]}'s rate stays the same in these steps" if len(still) == 1 else ""
    if same(mine[0], theirs[0]) and (factor := multiple(mine - mine[0], theirs - theirs[0])):
        words = f"in each step keras's rate is {factor:.6g} times as far from {mine[0]:.6g} as torch's"
    yield replace(cause, evidence="; ".join(filter(None, (words, cause.evidence))))


def _ahead(mine: Array, theirs: Array, differing: Array) -> int:
    """Return how many steps later torch has the rates that Keras has, negative for earlier; 0 if it never has.

    A schedule that is moved may begin or end with a part that both have alike, as one that falls after a warm-up.
    """
    steps = range(len(mine))
    for early in sorted((sign * number for number in steps[1:] for sign in (1, -1)), key=abs):
        compared = [step for step in steps if 0 <= step + early < len(mine)]
        alike = [step for step in compared if same(mine[step + early], theirs[step])]
        apart = [step for step in compared if step in differing]
        is_moved = len(alike) == len(compared) or all(step in alike for step in compared if step <= differing[-1])
        telling = alike if len(alike) == len(compared) else apart
        if is_moved and telling and not _stays(theirs[telling]):
            return early
    return 0


def _stays(rates: Array) -> bool:
    return same(rates.min(), rates.max())


def _cosine(rates: Array) -> dict[str, float]:
    """Return where a cosine ends that begins with the first rate, and after how many steps, if that are these rates."""
    falls = rates[0] - rates
    if len(rates) < FEWEST or not (ratio := falls[2] / falls[1] / 2 - 1 if falls[1] else 0.0) or abs(ratio) >= 1:
        return {}
    steps = math.pi / math.acos(ratio)
    shares = (1 - np.cos(math.pi * np.arange(len(rates)) / round(steps))) / 2
    depth = falls[1] / shares[1]
    is_whole = steps < LONGEST and math.isclose(steps, round(steps), rel_tol=WHOLE)
    if not is_whole or len(rates) > steps + 1 or not all(map(same, falls, depth * shares)):
        return {}
    end = rates[0] - depth
    return {END: 0.0 if abs(end) < WHOLE**2 * rates[0] else float(f"{end:.6g}"), LENGTH: float(round(steps))}


def _power(rates: Array) -> dict[str, float]:
    """Return the number by which the rate is multiplied in each step, if it is always the same."""
    growth = np.diff(np.log(rates)) if len(rates) >= FEWEST and rates.min() > 0 else np.zeros(1)
    return {FACTOR: float(f"{math.exp(growth[0]):.6g}")} if growth[0] and _stays(np.abs(growth)) else {}
