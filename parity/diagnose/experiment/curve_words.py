"""Two curves in words: what each is, and where they part."""

import math
from collections.abc import Sequence

import numpy as np

from parity.core.arrays import Floats
from parity.diagnose.experiment import curves
from parity.diagnose.experiment.curves import USUAL, Fit, Part

SHORT, LONG = 6, 17  # digits; the longer form is for numbers that the shorter one does not tell apart
APART = 2.0**-42  # relative to the larger of two values; nearer ones are equal


def difference(x: Floats, torch: Floats, keras: Floats) -> str:
    """Return what tells two curves apart: "torch 0.01 x below zero, keras 0.3 x"; "" if they are equal."""
    bound = APART * np.maximum(np.maximum(np.abs(torch), np.abs(keras)), 1.0)
    far = np.abs(torch - keras) > bound
    if not far.any():
        return ""
    here, there = curves.straight(x, torch), curves.straight(x, keras)
    if len(here) == len(there) and here and [part.start for part in here] == [part.start for part in there]:
        return _parts(here, there)
    for digits in (SHORT, LONG):
        one, other = _curve(x, torch, digits), _curve(x, keras, digits)
        if one != other:
            break
    return f"torch {one}, keras {other}; {_where(x, torch, keras, far)}"


def _parts(here: Sequence[Part], there: Sequence[Part]) -> str:
    """Return the straight parts in which two curves with the same kinks differ."""
    differing = [number for number, pair in enumerate(zip(here, there, strict=True)) if pair[0] != pair[1]]
    if len(differing) == 1:
        number = differing[0]
        one, other = (line(parts[number].slope, parts[number].offset) for parts in (here, there))
        if one == other:
            one, other = (line(parts[number].slope, parts[number].offset, LONG) for parts in (here, there))
        range_ = _range(here, number)
        return f"torch {one}{range_ and ' '}{range_}, keras {other}"
    return f"torch {_straight(here, SHORT)}, keras {_straight(there, SHORT)}"


def _curve(x: Floats, y: Floats, digits: int) -> str:
    """Return what one curve is."""
    if parts := curves.straight(x, y):
        return _straight(parts, digits)
    fit = curves.fitted(x, y)
    return _function(fit, digits) if fit else _shape(x, y)


def _straight(parts: Sequence[Part], digits: int) -> str:
    words = [
        f"{line(part.slope, part.offset, digits)} {_range(parts, number)}".rstrip() for number, part in enumerate(parts)
    ]
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def line(slope: float, offset: float, digits: int = SHORT) -> str:
    """Return a linear function in words: "0.5 x + 1"."""
    if not slope:
        return number(offset, digits)
    times = {1.0: "x", -1.0: "-x"}.get(slope, f"{number(slope, digits)} x")
    sign = "+" if offset > 0 else "-"
    return f"{times} {sign} {number(abs(offset), digits)}" if offset else times


def number(value: float, digits: int = SHORT) -> str:
    """Return a number with so many digits at most; `LONG` stands for as many as it takes to tell it from any other."""
    return f"{value + 0.0:.{digits}g}" if digits != LONG else repr(value + 0.0)


def _range(parts: Sequence[Part], index: int) -> str:
    """Return where a part of a curve lies."""
    start = parts[index].start
    end = parts[index + 1].start if index + 1 < len(parts) else math.inf
    if math.isinf(start):
        return "" if math.isinf(end) else f"below {_limit(parts, index + 1)}"
    if math.isinf(end):
        return f"above {_limit(parts, index)}"
    return f"from {_limit(parts, index)} to {_limit(parts, index + 1)}"


def _limit(parts: Sequence[Part], index: int) -> str:
    """Return where a part begins; where the curve jumps there, this is known roughly only."""
    start, slope, offset = parts[index]
    _, left, left_offset = parts[index - 1]
    jump = abs((slope - left) * start + offset - left_offset)
    if jump > APART * max(1.0, abs(offset), abs(left_offset)):
        return f"about {start:.2g}"
    return "zero" if start == 0.0 else number(start)


def _function(fit: Fit, digits: int) -> str:
    """Return a function with those constants that are not the usual ones."""
    unusual = [constant for constant in fit.constants if abs(constant[1] / constant[2] - 1.0) > USUAL]
    constants = " and ".join(f"{_unlike(value, usual, digits)} for {name}" for name, value, usual in unusual)
    words = f"{fit.name}{f' with {constants}' if constants else ''}"
    if abs(fit.scale - 1.0) > USUAL:
        words = f"{number(fit.scale, digits)} times {words}"
    if abs(fit.offset) > USUAL:
        words += f" {'plus' if fit.offset > 0 else 'minus'} {number(abs(fit.offset), digits)}"
    return words


def _unlike(value: float, usual: float, digits: int) -> str:
    """Return a number with more digits where fewer do not tell it from the usual one."""
    return number(value, digits if number(value, digits) != number(usual, digits) else LONG)


def _shape(x: Floats, y: Floats) -> str:
    """Return what a curve of no known function does far from zero and at zero."""
    below, above = (float((y[b] - y[a]) / (x[b] - x[a])) for a, b in ((0, 1), (-2, -1)))
    at_zero = float(y[np.argmin(np.abs(x))])
    return f"a curve of slope {below:.3g} far below zero, {at_zero:.3g} at zero, slope {above:.3g} far above"


def _where(x: Floats, torch: Floats, keras: Floats, far: np.ndarray) -> str:
    """Return between which inputs two curves differ, and an example."""
    with np.errstate(invalid="ignore"):
        relative = np.abs(torch - keras) / np.maximum(np.maximum(np.abs(torch), np.abs(keras)), 1.0)
    most = int(np.argmax(np.where(np.isfinite(relative), relative, 0.0)))
    points = x[far]
    one, other = (number(float(curve[most]), SHORT) for curve in (torch, keras))
    if one == other:
        one, other = (number(float(curve[most]), LONG) for curve in (torch, keras))
    return f"they part between {points[0]:.2g} and {points[-1]:.2g}: at {x[most]:.3g}, torch gives {one}, keras {other}"
