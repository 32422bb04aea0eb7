"""The drawing of one side's device layout: devices as boxes, modules in them, and what moves between them as arrows."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from markupsafe import Markup

from parity.core.groups import by_key
from parity.core.wording import count, fitted
from parity.report.html import svg
from parity.trace.layout import Layout

BOX, GAP, EDGE = 200.0, 24.0, 8.0
LINE, LANE = 17.0, 34.0  # heights of a line of text in a box, and of an arrow with its text
CHARACTER = 6.4  # width of a character of an arrow's text
MOST_MODULES, MOST_ARROWS = 8, 10
LONGEST = 25  # characters that fit into a box
UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def drawing(side: str, layout: Layout) -> Markup:
    """Return the drawing of a side's layout."""
    boxes = [_lines(number, layout) for number in range(len(layout.devices))]
    lanes = _arrows(layout)
    bottom = EDGE + LINE * (max(map(len, boxes), default=0) + 1)
    longest = max((len(lane.words) for lane in lanes), default=0)
    width = max(2 * EDGE + len(boxes) * BOX + (len(boxes) - 1) * GAP, 2 * EDGE + CHARACTER * longest)
    height = bottom + LANE * len(lanes) + EDGE
    parts = [
        *(part for number, lines in enumerate(boxes) for part in _box(number, lines, bottom)),
        *_lanes(lanes, bottom, width),
    ]
    return svg.figure(width, height, f"Devices of {side}: {', '.join(layout.devices)}", parts, "layout")


def size(count: int) -> str:
    """Return a number of bytes in the largest unit of which there is one."""
    for unit, name in UNITS:
        if count >= unit:
            return f"{count / unit:.1f} {name}"
    return f"{count} B"


def folded(names: Sequence[str], most: int) -> list[str]:
    """Return at most `most` lines for the names of modules: those with a common beginning are counted together."""
    deepest = max((name.count(".") for name in names), default=0)
    for depth in range(deepest + 1, 0, -1):
        counts = Counter(".".join(name.split(".")[:depth]) for name in names)
        if len(counts) <= most:
            break
    lines = [name if count == 1 else f"{name} ({count})" for name, count in counts.items()]
    return lines if len(lines) <= most else [*lines[: most - 1], f"and {len(lines) - most + 1} more"]


class _Arrow(NamedTuple):
    """What moves from one device to another; `both`: the arrow has a head at each end."""

    source: int
    target: int
    words: str
    both: bool


def _lines(number: int, layout: Layout) -> list[str]:
    """Return what stands in a device's box; the first line is its title."""
    held = sum(number in devices for devices in layout.parameters.values())
    slots = sum(number in devices for devices in layout.optimizer_state.values())
    computed = [name for name, devices in layout.compute.items() if number in devices]
    leaves = [name for name in computed if not any(other.startswith(f"{name}.") for other in computed)]
    title = f"{number}: {layout.devices[number]}"
    holds = count(held, "parameter") + (f", {count(slots, 'slot')}" if slots else "")
    return [title, holds, *folded(leaves, MOST_MODULES)]


def _arrows(layout: Layout) -> list[_Arrow]:
    """Return the copies, then the collectives; those that are too many are counted in a last one."""
    copies = by_key(((each.source, each.target), f"{each.what} {size(each.bytes)}") for each in layout.transfers)
    arrows = [_Arrow(*route, ", ".join(texts), both=False) for route, texts in copies.items()]
    last = len(layout.devices) - 1
    arrows += [_Arrow(0, last, f"{name} {size(count)}", both=True) for name, count in layout.collectives.items()]
    if len(arrows) > MOST_ARROWS:
        more = f"and {len(arrows) - MOST_ARROWS + 1} more"
        return [*arrows[: MOST_ARROWS - 1], _Arrow(0, last, more, both=True)]
    return arrows


def _box(number: int, lines: Sequence[str], bottom: float) -> Iterator[Markup]:
    x = EDGE + number * (BOX + GAP)
    yield svg.rectangle(x, EDGE, BOX, bottom - EDGE, "device", radius=6)
    for place, words in enumerate(lines):
        style = "title" if place == 0 else "tick" if place == 1 else "module"
        yield svg.text(x + 10, EDGE + LINE * (place + 1), fitted(words, LONGEST), style)


def _lanes(arrows: Sequence[_Arrow], top: float, width: float) -> Iterator[Markup]:
    for number, (source, target, words, both) in enumerate(arrows):
        y = top + LANE * (number + 1) - 8
        start, end = (EDGE + device * (BOX + GAP) + BOX / 2 for device in (source, target))
        if source == target:
            start, end = start - BOX / 3, end + BOX / 3
        yield svg.arrow((start, y), (end, y), "collective" if both else "arrow", both)
        half = EDGE + CHARACTER * len(words) / 2
        yield svg.text(min(max((start + end) / 2, half), width - half), y - 6, words, "tick", "middle")
