"""The curve of a module that acts on each element alone: which function it is, with its constants solved for.

A curve of straight parts is told by them, whatever its name. Others are fitted by families of functions, each with the
constants that implementations choose or round differently.
"""

import math
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np

from parity.core.arrays import Floats
from parity.diagnose.layers.activations import sigmoid

EXACT: Final = 1e-10  # the largest residual of a fit, relative to the curve
USUAL: Final = 1e-9  # relative distance up to which a solved constant is the usual one
STRAIGHT: Final = 1e-9  # relative distance of slopes that are equal
PARTS: Final = 6  # straight parts of a curve at most
ROUNDS: Final = 40
NEAR: Final = 8.0  # smooth functions are fitted within this distance from zero

_erf = np.vectorize(math.erf, otypes=[np.float64])


class Part(NamedTuple):
    """A straight part of a curve, slope * x + offset, from `start` on."""

    start: float
    slope: float
    offset: float


class Fit(NamedTuple):
    """A function with its constants: scale * name(x; constants) + offset."""

    name: str
    constants: tuple[tuple[str, float, float], ...]  # what it is, its value, the usual value
    scale: float
    offset: float


class Family(NamedTuple):
    """Functions that differ by constants; `constants` are their meanings and usual values."""

    name: str
    function: Callable[..., Floats]
    constants: tuple[tuple[str, float], ...] = ()


def _elu(x: Floats, alpha: float, width: float) -> Floats:
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0.0) / width))


FAMILIES: Final = (
    Family("exact GELU", lambda x, c: 0.5 * x * (1.0 + _erf(c * x)), (("sqrt(1/2)", math.sqrt(0.5)),)),
    Family("tanh", lambda x, b: np.tanh(b * x), (("the factor of x", 1.0),)),
    Family(
        "GELU by tanh",
        lambda x, a, b: 0.5 * x * (1.0 + np.tanh(a * (x + b * x**3))),
        (("sqrt(2/pi)", math.sqrt(2.0 / math.pi)), ("the cube's factor", 0.044715)),
    ),
    Family("GELU by a sigmoid", lambda x, b: x * sigmoid(b * x), (("the factor in the sigmoid", 1.702),)),
    Family("SiLU", lambda x, b: x * sigmoid(b * x), (("the factor in the sigmoid", 1.0),)),
    Family("ELU", _elu, (("alpha", 1.0), ("the width", 1.0))),
    Family("sigmoid", lambda x, b: sigmoid(b * x), (("the factor of x", 1.0),)),
    Family("softplus", lambda x, b: np.logaddexp(0.0, b * x) / b, (("beta", 1.0),)),
    Family("mish", lambda x: x * np.tanh(np.logaddexp(0.0, x))),
    Family("log-sigmoid", lambda x: -np.logaddexp(0.0, -x)),
    Family("softsign", lambda x: x / (1.0 + np.abs(x))),
    Family("x - tanh(x)", lambda x: x - np.tanh(x)),
    Family("exp", lambda x, b: np.exp(b * x), (("the factor of x", 1.0),)),
    Family("square", lambda x: x * x),
    Family("squared ReLU", lambda x: np.maximum(x, 0.0) ** 2),
    Family(
        "hard swish",
        lambda x, width, slope: x * np.clip(x * slope + 0.5, 0.0, 1.0) * width,
        (("the factor", 1.0), ("the slope", 1.0 / 6.0)),
    ),
    Family("sine", lambda x, b: np.sin(b * x), (("the factor of x", 1.0),)),
    Family("cosine", lambda x, b: np.cos(b * x), (("the factor of x", 1.0),)),
    Family("error function", lambda x, b: _erf(b * x), (("the factor of x", 1.0),)),
)


def straight(x: Floats, y: Floats) -> list[Part]:
    """Return the straight parts of a curve; none if it is curved, or has too many. `x` ascends."""
    slopes = np.diff(y) / np.diff(x)
    if not np.isfinite(slopes).all():
        return []
    equal = np.abs(np.diff(slopes)) <= STRAIGHT * max(np.abs(slopes).max(), 1e-300)
    parts: list[Part] = []
    covered, first = 0, 0
    while first < equal.size:
        last = first
        while last < equal.size and equal[last]:
            last += 1
        if last > first + 1:  # points first to last + 1 are on a line
            covered += last - first + 2
            parts.append(_part(x[first : last + 2], y[first : last + 2], parts))
        first = last + 1
    return parts if covered >= x.size - 2 * len(parts) and len(parts) <= PARTS else []


def _part(x: Floats, y: Floats, before: Sequence[Part]) -> Part:
    """Return the line through points, beginning where it meets the line before it."""
    slope = float((y[-1] - y[0]) / (x[-1] - x[0]))
    offset = _clean(float(y[0] - slope * x[0]))
    slope = _clean(slope)
    if not before:
        return Part(-math.inf, slope, offset)
    _, left, left_offset = before[-1]
    meeting = (left_offset - offset) / (slope - left) if slope != left else float(x[0])
    step = float(x[1] - x[0])
    return Part(_clean(meeting if abs(meeting - x[0]) <= 2 * step else float(x[0])), slope, offset)


def _clean(value: float) -> float:
    """Return a solved number without the rounding that its decimal form would show."""
    return round(value, 10) + 0.0 if abs(value - round(value, 10)) <= 1e-12 * max(1.0, abs(value)) else value


def fitted(x: Floats, y: Floats) -> Fit | None:
    """Return the function that a smooth curve is, scaled and shifted only where it is not without."""
    x, y = x[np.abs(x) <= NEAR], y[np.abs(x) <= NEAR]
    if not np.isfinite(y).all():
        return None
    for scaled in (False, True):
        fits = [fit for family in FAMILIES if (fit := _fit(family, x, y, scaled))]
        if fits:
            return min(fits, key=_unusual)
    return None


def _unusual(fit: Fit) -> float:
    """Return how far the constants are from the usual ones, so that the nearest name is chosen."""
    return sum(abs(value / usual - 1.0) for _, value, usual in fit.constants)


def _fit(family: Family, x: Floats, y: Floats, scaled: bool) -> Fit | None:
    """Solve for the constants by the Gauss-Newton method."""
    constants = np.array([usual for _, usual in family.constants])
    weights = 1.0 / (np.abs(y) + np.abs(y).mean() + 1e-300)

    def predicted(at: Floats) -> tuple[Floats, float, float]:
        shape = family.function(x, *at)
        if not scaled:
            return shape, 1.0, 0.0
        columns = np.stack([shape, np.ones_like(x)], 1) * weights[:, None]
        scale, offset = np.linalg.lstsq(columns, y * weights, rcond=None)[0]
        return scale * shape + offset, float(scale), float(offset)

    with np.errstate(all="ignore"):
        try:
            constants = _solved(lambda at: (predicted(at)[0] - y) * weights, constants)
            curve, scale, offset = predicted(constants)
        except np.linalg.LinAlgError:
            return None
        if not np.abs((curve - y) * weights).max() <= EXACT:
            return None
    named = tuple(
        (name, _clean(float(value)), usual) for (name, usual), value in zip(family.constants, constants, strict=True)
    )
    return Fit(family.name, named, _clean(scale), _clean(offset))


def _solved(residuals: Callable[[Floats], Floats], constants: Floats) -> Floats:
    """Return the constants of the least squares; the starting ones if there is nothing to gain."""
    best = residuals(constants)
    for _ in range(ROUNDS if constants.size else 0):
        steps = 1e-6 * np.abs(constants)
        slopes = [(residuals(constants + step) - best) / step.sum() for step in np.diag(steps)]
        move = np.linalg.lstsq(np.stack(slopes, 1), -best, rcond=None)[0]
        move = np.clip(move, -0.5 * np.abs(constants), 1.0 * np.abs(constants))
        nearer = residuals(constants + move)
        if not nearer @ nearer < best @ best:
            break
        constants, best = constants + move, nearer
    return constants
