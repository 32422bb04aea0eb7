"""The plots of a case: its noise band, by how much the sides differ against rounding, and the losses of both sides."""

import itertools
import math
import operator
from collections.abc import Collection, Iterator, Sequence

from markupsafe import Markup

from parity.core.groups import grouped
from parity.core.wording import count
from parity.details import Compared, Details
from parity.report.html import svg

WIDTH = 960.0
HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 320.0, 64.0, 948.0, 16.0, 268.0  # of the noise band
LOWEST, HIGHEST = -60.0, 10.0  # log2 of the fractions that are drawn; equal tensors are drawn below
EQUAL = 288.0  # y of the tensors that are equal
CHARACTER = 5.8  # width of a character of a step's name
Row = tuple[float, Compared]  # a tensor in the plot, with its x


def noise_band(details: Details, listed: Collection[int]) -> Markup:
    """Return the noise band; of the tensors in `listed`, by their number, the names are shown. Empty without numbers.

    Each tensor stands at its place in execution order. The difference of the float64 runs (dots) and the noise of the
    low runs (upper line) are fractions of the tensor's largest value, in powers of two. The lower line is the noise
    less the bits that a match needs: what lies above it is more than rounding explains.
    """
    width = (RIGHT - LEFT) / max(len(details.tensors), 1)
    rows = [(LEFT + (number + 0.5) * width, row) for number, row in enumerate(details.tensors)]
    noises = [(x, noise) for x, row in rows if (noise := _relative(row.noise, row)) is not None]
    if not noises:
        return Markup("")
    parts = [*_axis(), *_steps(rows), *_band(noises, details.needed), *_points(rows, listed)]
    return svg.figure(WIDTH, HEIGHT, f"Noise band of {count(len(rows), 'tensor')} in execution order", parts, "band")


def _relative(value: float | None, row: Compared) -> float | None:
    """Return log2 of a value as a fraction of the tensor's largest; None where it is 0."""
    return math.log2(value) - math.log2(row.scale) if value and row.scale else None


def _y(power: float) -> float:
    """Return the y of a logarithm; what is off the scale is drawn at its end."""
    return svg.Axis(LOWEST, HIGHEST, BOTTOM, TOP)(min(max(power, LOWEST), HIGHEST))


def _axis() -> Iterator[Markup]:
    for power in range(int(LOWEST), int(HIGHEST) + 1, 10):
        yield from svg.gridline(_y(power), LEFT, RIGHT, svg.power_of_two(power))
    yield svg.text(LEFT - 8, EQUAL + 4, "equal", "tick", "end")


def _steps(rows: Sequence[Row]) -> Iterator[Markup]:
    """Yield a line where each step begins, and its name where there is room."""
    free = LEFT
    for step, within in itertools.groupby(rows, key=lambda pair: pair[1].step):
        x, name = next(within)[0], "start" if step is None else f"step {step}"
        yield svg.line((x, TOP), (x, EQUAL + 8), "step")
        if x >= free:
            yield svg.text(x + 2, HEIGHT - 6, name, "tick")
            free = x + 4 + CHARACTER * len(name)


def _band(noises: Sequence[svg.Point], needed: float) -> Iterator[Markup]:
    columns = grouped(noises, lambda point: round(point[0]))
    height = operator.itemgetter(1)
    # Of the points that share a column the lowest and the highest, in their order.
    ends = ((min(column, key=height), max(column, key=height)) for column in columns.values())
    noisy = [point for pair in ends for point in dict.fromkeys(sorted(pair))]
    upper = [(x, _y(noise)) for x, noise in noisy]
    lower = [(x, _y(noise - needed)) for x, noise in noisy]
    yield svg.path([*upper, *reversed(lower)], "between", closed=True)
    yield svg.path(upper, "noise")
    yield svg.path(lower, "limit")


def _points(rows: Sequence[Row], listed: Collection[int]) -> Iterator[Markup]:
    powers = [_relative(row.difference, row) for _, row in rows]
    points = [(x, EQUAL if power is None else _y(power)) for (x, _), power in zip(rows, powers, strict=True)]
    matches = [row.verdict == "match" for _, row in rows]
    yield svg.dots(itertools.compress(points, matches), "same")
    for number, (point, (_, row), is_match) in enumerate(zip(points, rows, matches, strict=True)):
        if number in listed:
            step = "start" if row.step is None else f"step {row.step}"
            bits = "" if row.bits is None else f", {row.bits:z.1f} bits"
            title = f"{step}, {row.kind} {row.name}: {row.verdict}{bits}"
            yield svg.marked(*point, "name" if is_match else "apart", title, cross=not is_match)


CURVES_HEIGHT, BEGIN, END, TOPMOST = 300.0, 84.0, 940.0, 24.0
MIDDLE, BELOW = 170.0, 200.0  # the curves are above, their difference is below, down to BOTTOM
STYLES = "reference", "candidate"
Curve = Sequence[float | None]


def loss_curves(losses: dict[str, list[float | None]]) -> Markup:
    """Return the plot of two curves; empty where there are not two steps of finite losses."""
    known = [value for curve in losses.values() for value in curve if value is not None]
    if len(losses) != 2 or min(map(len, losses.values())) < 2 or not known:
        return Markup("")
    names, curves = list(losses), list(losses.values())
    x = svg.Axis(0, max(map(len, curves)) - 1, BEGIN, END)
    y = svg.Axis(min(known), max(known), MIDDLE, TOPMOST)
    parts: list[Markup] = []
    for value in dict.fromkeys((y.low, (y.low + y.high) / 2, y.high)):
        parts += svg.gridline(y(value), BEGIN, END, f"{value:z.4g}")
    parts += [*_curves(names, curves, x, y), *_difference(curves, x)]
    for step in range(0, len(curves[0]), max(1, math.ceil(len(curves[0]) / 12))):
        parts.append(svg.text(x(step), CURVES_HEIGHT - 8, f"step {step}" if step == 0 else str(step), "tick", "middle"))
    label = f"Loss of {names[0]} and {names[1]} in {count(len(curves[0]), 'step')}"
    return svg.figure(WIDTH, CURVES_HEIGHT, label, parts, "losses")


def largest_difference(losses: dict[str, list[float | None]]) -> float | None:
    """Return the largest difference of the two curves, as a fraction of the loss there; None if unknown."""
    apart = [
        abs(first - second) / (max(abs(first), abs(second)) or 1.0)
        for first, second in zip(*losses.values(), strict=False)
        if first is not None and second is not None
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
    yield from svg.gridline(BELOW, BEGIN, END, f"apart {svg.power_of_two(0)}")
    yield from svg.gridline(BOTTOM, BEGIN, END, svg.power_of_two(-60))
    for step, (first, second) in enumerate(zip(*curves, strict=False)):
        if first is None or second is None or first == second:
            continue
        apart = math.log2(abs(first - second)) - math.log2(max(abs(first), abs(second)))
        height = max(apart + 60, 0) / 60 * (BOTTOM - BELOW)
        yield svg.rectangle(x(step) - 3, BOTTOM - height, 6, max(height, 1), "bar")
