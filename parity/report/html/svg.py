"""SVG elements for the drawings of a page, without a chart library.

Colours are classes of style.css, so that a drawing follows the page's colour scheme. All texts are escaped.
"""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from markupsafe import Markup

Point = tuple[float, float]


class Axis(NamedTuple):
    """Where numbers lie in a drawing: `low` at `start` and `high` at `end`, each number on a straight line between."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, number: float) -> float:
        return self.start + (number - self.low) / ((self.high - self.low) or 1.0) * (self.end - self.start)


SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def figure(width: float, height: float, label: str, parts: Iterable[Markup], kind: str = "") -> Markup:
    """Return a drawing of that many units; `label` says what it shows to those who do not see it."""
    return Markup('<svg class="drawing {}" viewBox="0 0 {} {}" width="{}" role="img" aria-label="{}">{}</svg>').format(
        kind, number(width), number(height), number(width), label, Markup("").join(parts)
    )


def text(x: float, y: float, words: str, style: str = "", anchor: str = "start") -> Markup:
    return Markup('<text x="{}" y="{}" class="{}" text-anchor="{}">{}</text>').format(
        number(x), number(y), style, anchor, words
    )


def rectangle(x: float, y: float, width: float, height: float, style: str, radius: float = 0) -> Markup:
    return Markup('<rect x="{}" y="{}" width="{}" height="{}" rx="{}" class="{}"/>').format(
        number(x), number(y), number(width), number(height), number(radius), style
    )


def line(start: Point, end: Point, style: str) -> Markup:
    return Markup('<line x1="{}" y1="{}" x2="{}" y2="{}" class="{}"/>').format(*map(number, (*start, *end)), style)


def path(points: Sequence[Point], style: str, closed: bool = False) -> Markup:
    """Return a line through all points, or the area within it; whole units keep it short."""
    if not points:
        return Markup("")
    steps = "L".join(dict.fromkeys(f"{x:.0f} {y:.0f}" for x, y in points))
    return Markup('<path d="M{}{}" class="{}"/>').format(steps, "Z" if closed else "", style)


def dots(points: Iterable[Point], style: str) -> Markup:
    """Return dots as one path of lines without length, whose round ends are drawn: few bytes for many dots."""
    steps = "".join(dict.fromkeys(f"M{x:.0f} {y:.0f}h0" for x, y in points))
    return Markup('<path d="{}" class="{}"/>').format(steps, style) if steps else Markup("")


def marked(x: float, y: float, style: str, title: str, cross: bool = False) -> Markup:
    """Return a point with a text that appears where the pointer rests on it; a cross or a circle."""
    shape = (
        Markup('<path d="M{} {}l8 8m0 -8l-8 8"/>').format(number(x - 4), number(y - 4))
        if cross
        else Markup('<circle cx="{}" cy="{}" r="4"/>').format(number(x), number(y))
    )
    return Markup('<g class="{}">{}<title>{}</title></g>').format(style, shape, title)


def arrow(start: Point, end: Point, style: str = "arrow", both: bool = False) -> Markup:
    """Return a horizontal arrow; `both`: with a head at each end."""
    direction = math.copysign(1, end[0] - start[0])
    heads = [_head(end, direction), *([_head(start, -direction)] if both else [])]
    return Markup("").join([line(start, end, style), *heads])


def power_of_two(exponent: int) -> str:
    return "2" + str(exponent).translate(SUPERSCRIPTS)


def number(value: float) -> str:
    """Return a coordinate with one decimal at most."""
    return f"{value:.1f}".removesuffix(".0")


def _head(tip: Point, direction: float) -> Markup:
    x, y = tip
    back = x - 7 * direction
    return path([(x, y), (back, y - 4), (back, y + 4)], "head", closed=True)
