"""Causes in dropout: its rate, its scale, and which masks it draws.

Masks come from the shared generator (parity.core.random.keep), keyed by module, replica, step and call. Attention drops
its weights by the same rule. In a pair, whose modules have other names on each side, a mask is known by its number
among those that the step draws for tensors of its size, so that one dropout too many shows in the masks of all later
ones.
"""

import hashlib
import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import numpy as np

from parity.config.pair import Pair
from parity.core import random
from parity.core.arrays import Array
from parity.diagnose import solve
from parity.diagnose.formula import UNUSED, Formula, Settings, Trait, choices, require, usually
from parity.diagnose.layers.call import Call

SHARED: Final = "the shared generator"
RATES: Final = (0.1, 0.2, 0.25, 0.3, 0.5)
MASK: Final = "mask {} of the step for {} elements"
MOST_MASKS: Final = 64  # of a step, for tensors of one size, that are tried
SIGMAS: Final = 6.0  # standard deviations by which the number of dropped elements may miss the rate


def factors(call: Call, shape: tuple[int, ...], settings: Settings) -> Array:
    """Return the factors that dropout multiplies by, with a mask from the shared generator."""
    if not (settings["active"] and settings["rate"]):
        return np.ones(shape)
    seed, name, rate = call.case.seed, call.name, settings["rate"]
    kept = random.keep(seed, name, settings["replica"], settings["step"], call.number, shape, rate)
    return kept * _scale(settings)


def _scale(settings: Settings) -> float:
    if settings["kept"] != "scaled by 1 / (1 - rate)":
        return 1.0
    require(settings["rate"] < 1, "a rate below 1")
    return float(1.0 / (1.0 - settings["rate"]))


def _predict(call: Call, **settings: Any) -> dict[str, Array]:
    x, kept = call.inputs[0], call.output != 0
    if settings["generator"] in (SHARED, UNUSED) or not settings["active"]:
        return {"output": x * factors(call, x.shape, settings)}
    if settings["generator"] not in _numbered(call, settings):
        require(settings["generator"] == _own(call), "the recorded mask")
        require(_plausible(call, settings["rate"], call.output.shape), "a number of dropped elements that is likely")
    return {"output": x * kept * _scale(settings)}


def _own(call: Call) -> str:
    """Return a name for the recorded mask, made of its digest: two masks of no shared generator must not seem one."""
    return f"a mask of its own ({hashlib.blake2b((call.output != 0).tobytes(), digest_size=4).hexdigest()})"


def _numbered(call: Call, settings: Settings) -> Iterator[str]:
    """Yield the name of the recorded mask, if it is one of those that a pair's modules share; numbers begin at 1."""
    if not isinstance(call.case.model, Pair):
        return
    x, rate = call.inputs[0], settings["rate"]
    for shape in _shapes(call):
        size = math.prod(shape)
        of = call.case.seed, random.mask_name(size), settings["replica"], settings["step"]
        for number in range(MOST_MASKS) if _plausible(call, rate, shape) else ():
            if np.array_equal((x != 0) & random.keep(*of, number, shape, rate), call.output != 0):
                yield MASK.format(number + 1, size)
                return


def _shapes(call: Call) -> Iterator[tuple[int, ...]]:
    """Yield the shapes that the mask may have: with 1 for axes that it is equal along, as in spatial dropout."""
    shape, axes = call.output.shape, range(call.output.ndim)
    kept, dropped = call.output != 0, (call.inputs[0] != 0) & (call.output == 0)
    yield shape
    for number in range(1, len(shape)):
        for along in itertools.combinations(axes, number):
            if not np.any(kept.any(along) & dropped.any(along)):
                yield tuple(1 if axis in along else shape[axis] for axis in axes)


def _drawn_otherwise(reference: str, candidate: str) -> str:
    """Return the cause if both masks are shared ones: another shape, or another number of them drawn before."""
    if None in (mask_number(reference), mask_number(candidate)):
        return ""
    sizes = (generator.partition(" for ")[2] for generator in (reference, candidate))
    return "dropout.order" if len(set(sizes)) == 1 else "dropout.shape"


def mask_number(generator: object) -> int | None:
    """Return the number of a mask of the step that a cause names; None for any other."""
    before, between, _ = MASK.split("{}")
    text = str(generator).removeprefix(before)
    return int(text.partition(between)[0]) if text != str(generator) else None


def _plausible(call: Call, rate: float, shape: tuple[int, ...]) -> bool:
    """Return whether a mask of a shape drops a likely number of elements for the rate, and enough of them to tell."""
    along = tuple(axis for axis, length in enumerate(shape) if length == 1)
    given = call.inputs[0] != 0
    count, dropped = (np.count_nonzero(each.any(along)) for each in (given, given & (call.output == 0)))
    spread = SIGMAS * np.sqrt(count * rate * (1 - rate))
    return bool(dropped >= solve.ENOUGH and abs(dropped - count * rate) <= spread)


def _rates(call: Call, settings: Settings) -> Iterator[float]:
    """Yield the case's rate, then the one that the scale of the kept elements implies, then usual ones."""
    yield call.case.dropout
    kept = call.output != 0
    factors = solve.scale(call.inputs[0][kept], call.output[kept])
    yield from (1.0 - 1.0 / factor for factor in factors if factor > 1.0)
    yield from RATES


def _generators(call: Call, settings: Settings) -> Iterator[str]:
    if not (settings["active"] and settings["rate"]):
        yield UNUSED
        return
    yield SHARED
    yield from _numbered(call, settings)
    yield _own(call)


def traits(rates: Callable[[Call, Settings], Iterable[float]]) -> tuple[Trait[Call], ...]:
    """Return the traits of every module that drops elements."""
    return (
        Trait("active", "dropout.active", usually(lambda call: call.training, True, False)),
        Trait("rate", "dropout.rate", rates),
        Trait("kept", "dropout.scale", choices("scaled by 1 / (1 - rate)", "not scaled")),
        # The masks of its own replica and step, or those of replica 0 and of the first step.
        Trait("replica", "dropout.replicas", usually(lambda call: call.replica, 0)),
        Trait("step", "dropout.step", usually(lambda call: call.step, 0)),
    )


DROPOUT = Formula(
    _predict,
    (*traits(_rates), Trait("generator", "dropout.generator", _generators, _drawn_otherwise)),
    lambda call: require(call.inputs[0].shape == call.output.shape, "an output of the input's shape"),
)
