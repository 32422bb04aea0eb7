"""The loss curves of both sides, and their difference."""

import math
from collections.abc import Iterator, Sequence

from markupsafe import Markup

from parity.core.wording import count
from parity.report.html import svg

WIDTH, HEIGHT = 960.0, 300.0
LEFT, RIGHT, TOP = 84.0, 940.0, 24.0
MIDDLE, BELOW, BOTTOM = 170.0, 200.0, 268.0  # the curves are above, their difference is below
STYLES = "reference", "candidate"
Curve = Sequence[float | None]


def plot(losses: dict[str, list[float | None]]) -> Markup:
    """Return the plot of two curves; empty where there are not two steps of finite losses."""
    known = [value for curve in losses.values() for value in curve if value is not None]
    if len(losses) != 2 or min(map(len, losses.values())) < 2 or not known:
        return Markup("")
    names, curves = list(losses), list(losses.values())
    x = svg.Axis(0, max(map(len, curves)) - 1, LEFT, RIGHT)
    y = svg.Axis(min(known), max(known), MIDDLE, TOP)
    parts: list[Markup] = []
    for value in dict.fromkeys((y.low, (y.low + y.high) / 2, y.high)):
        parts.append(svg.line((LEFT, y(value)), (RIGHT, y(value)), "grid"))
        parts.append(svg.text(LEFT - 8, y(value) + 4, f"{value:z.4g}", "tick", "end"))
    parts += [*_curves(names, curves, x, y), *_difference(curves, x)]
    for step in range(0, len(curves[0]), max(1, math.ceil(len(curves[0]) / 12))):
        parts.append(svg.text(x(step), HEIGHT - 8, f"step {step}" if step == 0 else str(step), "tick", "middle"))
    label = f"Loss of {names[0]} and {names[1]} in {count(len(curves[0]), 'step')}"
    return svg.figure(WIDTH, HEIGHT, label, parts, "losses")


def largest_difference(losses: dict[str, list[float | None]]) -> float | None:
    """Return the largest difference of the two curves, as a fraction of the loss there; None if unknown."""
    apart = [
        abs(one - other) / (max(abs(one), abs(other)) or 1.0)
        for one, other in zip(*losses.values(), strict=False)
        if one is not None and other is not None
    ]
    return max(apart, default=None)


def _curves(names: Sequence[str], curves: Sequence[Curve], x: svg.Axis, y: svg.Axis) -> Iterator[Markup]:
    """Yield a line for each side, then, above both, the points with their numbers."""
    points = []
    for name, curve, style in zip(names, curves, STYLES, strict=True):
        known = [(step, value) for step, value in enumerate(curve) if value is not None]
        yield svg.path([(x(step), y(value)) for step, value in known], style)
        points += [svg.marked(x(at), y(loss), "name", f"step {at}, {name}: {loss:z.17g}") for at, loss in known]
    yield from points


def _difference(curves: Sequence[Curve], x: svg.Axis) -> Iterator[Markup]:
    """Yield a bar for each step: the difference as a fraction of the loss, in powers of two from -60 to 0."""
    yield svg.line((LEFT, BOTTOM), (RIGHT, BOTTOM), "grid")
    yield svg.line((LEFT, BELOW), (RIGHT, BELOW), "grid")
    yield svg.text(LEFT - 8, BELOW + 4, f"apart {svg.power_of_two(0)}", "tick", "end")
    yield svg.text(LEFT - 8, BOTTOM + 4, svg.power_of_two(-60), "tick", "end")
    for step, (one, other) in enumerate(zip(*curves, strict=False)):
        if one is None or other is None or one == other:
            continue
        apart = math.log2(abs(one - other)) - math.log2(max(abs(one), abs(other)))
        height = max(apart + 60, 0) / 60 * (BOTTOM - BELOW)
        yield svg.rectangle(x(step) - 3, BOTTOM - height, 6, max(height, 1), "bar")
