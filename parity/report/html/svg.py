"""SVG elements for the drawings of a page, without a chart library; and the drawing of a device layout.

Colours are classes of style.css, so that a drawing follows the page's colour scheme. All texts are escaped.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from markupsafe import Markup

from parity.core.groups import by_key, depth_of
from parity.core.wording import count, fitted, size
from parity.trace.layout import Layout

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
    attributes = number(x), number(y), style, anchor
    return Markup('<text x="{}" y="{}" class="{}" text-anchor="{}">{}</text>').format(*attributes, words)


def rectangle(x: float, y: float, width: float, height: float, style: str, radius: float = 0) -> Markup:
    sizes = map(number, (x, y, width, height, radius))
    return Markup('<rect x="{}" y="{}" width="{}" height="{}" rx="{}" class="{}"/>').format(*sizes, style)


def gridline(y: float, start: float, end: float, label: str) -> Iterator[Markup]:
    """Yield a line across a plot, with what it stands for on its left."""
    yield line((start, y), (end, y), "grid")
    yield text(start - 8, y + 4, label, "tick", "end")


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


def power_of_two(exponent: int) -> str:
    return "2" + str(exponent).translate(SUPERSCRIPTS)


def number(value: float) -> str:
    """Return a coordinate with one decimal at most."""
    return f"{value:.1f}".removesuffix(".0")


def _head(tip: Point, direction: float) -> Markup:
    x, y = tip
    back = x - 7 * direction
    return path([(x, y), (back, y - 4), (back, y + 4)], "head", closed=True)


BOX, GAP, EDGE = 200.0, 24.0, 8.0
LINE, LANE = 17.0, 34.0  # heights of a line of text in a box, and of an arrow with its text
CHARACTER = 6.4  # width of a character of an arrow's text
MOST_MODULES, MOST_ARROWS = 8, 10
LONGEST = 25  # characters that fit into a box


def drawing(side: str, layout: Layout) -> Markup:
    """Return the drawing of a device layout: a box for each device, with its modules, and arrows for what moves."""
    boxes = [_lines(number, layout) for number in range(len(layout.devices))]
    lanes = _arrows(layout)
    bottom = EDGE + LINE * (max(map(len, boxes), default=0) + 1)
    longest = max((len(words) for _, _, words, _ in lanes), default=0)
    width = max(2 * EDGE + len(boxes) * BOX + (len(boxes) - 1) * GAP, 2 * EDGE + CHARACTER * longest)
    height = bottom + LANE * len(lanes) + EDGE
    drawn = [part for number, lines in enumerate(boxes) for part in _box(number, lines, bottom)]
    label = f"Devices of {side}: {', '.join(layout.devices)}"
    return figure(width, height, label, [*drawn, *_lanes(lanes, bottom, width)], "layout")


def folded(names: Sequence[str], most: int) -> list[str]:
    """Return at most `most` lines for the names of modules: those with a common beginning are counted together."""
    paths = [name.split(".") for name in names]
    depth = depth_of(paths, most)
    counts = Counter(".".join(path[:depth]) for path in paths)
    lines = [name if count == 1 else f"{name} ({count})" for name, count in counts.items()]
    return lines if len(lines) <= most else [*lines[: most - 1], f"and {len(lines) - most + 1} more"]


Arrow = tuple[int, int, str, bool]  # source and target, what moves, and whether there is a head at each end


def _lines(number: int, layout: Layout) -> list[str]:
    """Return what stands in a device's box; the first line is its title."""
    held = sum(number in devices for devices in layout.parameters.values())
    slots = sum(number in devices for devices in layout.optimizer_state.values())
    computed = [name for name, devices in layout.compute.items() if number in devices]
    leaves = [name for name in computed if not any(other.startswith(f"{name}.") for other in computed)]
    title = f"{number}: {layout.devices[number]}"
    holds = count(held, "parameter") + (f", {count(slots, 'slot')}" if slots else "")
    return [title, holds, *folded(leaves, MOST_MODULES)]


def _arrows(layout: Layout) -> list[Arrow]:
    """Return the copies, then the collectives; those that are too many are counted in a last one."""
    copies = by_key(((each.source, each.target), f"{each.what} {size(each.bytes)}") for each in layout.transfers)
    arrows = [(*route, ", ".join(texts), False) for route, texts in copies.items()]
    last = len(layout.devices) - 1
    arrows += [(0, last, f"{name} {size(count)}", True) for name, count in layout.collectives.items()]
    if len(arrows) > MOST_ARROWS:
        return [*arrows[: MOST_ARROWS - 1], (0, last, f"and {len(arrows) - MOST_ARROWS + 1} more", True)]
    return arrows


def _box(number: int, lines: Sequence[str], bottom: float) -> Iterator[Markup]:
    x = EDGE + number * (BOX + GAP)
    yield rectangle(x, EDGE, BOX, bottom - EDGE, "device", radius=6)
    for row, words in enumerate(lines):
        style = "title" if row == 0 else "tick" if row == 1 else "module"
        yield text(x + 10, EDGE + LINE * (row + 1), fitted(words, LONGEST), style)


def _lanes(arrows: Sequence[Arrow], top: float, width: float) -> Iterator[Markup]:
    for number, (source, target, words, both) in enumerate(arrows):
        y = top + LANE * (number + 1) - 8
        start, end = (EDGE + device * (BOX + GAP) + BOX / 2 for device in (source, target))
        if source == target:
            start, end = start - BOX / 3, end + BOX / 3
        yield line((start, y), (end, y), "collective" if both else "arrow")
        direction = math.copysign(1, end - start)
        yield _head((end, y), direction)
        if both:
            yield _head((start, y), -direction)
        half = EDGE + CHARACTER * len(words) / 2
        yield text(min(max((start + end) / 2, half), width - half), y - 6, words, "tick", "middle")
