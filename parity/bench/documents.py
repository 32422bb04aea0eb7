"""A benchmark as a page and as Markdown, with the curves of a sweep: samples per second by batch or by devices."""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from markupsafe import Markup

from parity.bench.report import HEADINGS, LEGEND, full_name, notes, row, title
from parity.bench.results import Benchmark, Timed
from parity.config.devices import parse
from parity.core.wording import agree, count
from parity.report import markdown
from parity.report.html import page, svg
from parity.report.output import Makers

MARKS = {"match": "✓", "diverged": "✗", "error": "✗"}
TITLE = "Benchmark"
WIDTH, HEIGHT = 960.0, 300.0
LEFT, RIGHT, TOP, BOTTOM = 84.0, 760.0, 24.0, 250.0  # names stand to the right of the curves
LINE = 16.0  # units between two names at least
STYLES = {"torch": "reference", "keras": "candidate"}


def makers(benchmark: Benchmark) -> Makers:
    """Return what makes each format's text."""
    return {"html": lambda: _page(benchmark), "markdown": lambda: _markdown(benchmark)}


def headline(benchmark: Benchmark) -> str:
    """Return the outcome in one sentence."""
    if benchmark.slower:
        return f"{count(len(benchmark.slower), 'time')} {agree(len(benchmark.slower), 'is')} slower than before."
    if wrong := [timed.case for timed in benchmark.timed if timed.reason]:
        return f"Not timed, because the two sides do not compute the same: {', '.join(dict.fromkeys(wrong))}."
    number, processor = len(benchmark.timed), benchmark.machine.processor
    return f"{count(number, 'training')} {agree(number, 'was')} timed on {processor}."


def _page(benchmark: Benchmark) -> str:
    failed = benchmark.slower or benchmark.error or any(timed.reason for timed in benchmark.timed)
    verdict = "diverged" if failed else "match"
    banner = page.Banner(verdict, MARKS[verdict], benchmark.error or headline(benchmark), benchmark.command)
    found = [(title(each), each.verdict, each.reason, _rows(each), list(notes(each))) for each in benchmark.timed]
    drawn = list(plots(benchmark.timed))
    times = page.part("bench", found=found, headings=HEADINGS, legend=LEGEND, curves=drawn, run=benchmark)
    sections = [
        page.Section("times", "Time of a step", times),
        page.Section("environment", "Environment", page.part("bench_machine", run=benchmark)),
    ]
    return page.render(TITLE, banner, sections, benchmark)


def _rows(timed: Timed) -> list[list[str]]:
    return [[full_name(lane), *row(lane)] for lane in timed.lanes if lane.step]


def _markdown(benchmark: Benchmark) -> str:
    return markdown.document(headline(benchmark), list(_tables(benchmark)), map(markdown.escaped, benchmark.slower))


def _tables(benchmark: Benchmark) -> Iterator[str]:
    for timed in benchmark.timed:
        yield f"\n{markdown.escaped(title(timed))}: {timed.verdict} {markdown.escaped(timed.reason)}\n"
        if timed.lanes:
            yield from markdown.table(HEADINGS, _rows(timed))


class Sample(NamedTuple):
    """A point of a curve: its curve's side and name, where it lies, and the samples per second."""

    side: str
    name: str
    x: int
    y: float


def plots(timed: Sequence[Timed]) -> Iterator[Markup]:
    """Yield a plot for each case and number of devices by batch, and for each case and batch by devices."""
    for what, fixed in (("batch", "devices"), ("devices", "batch")):
        groups: dict[tuple[str, object], list[Timed]] = defaultdict(list)
        for each in timed:
            groups[each.case, getattr(each, fixed)].append(each)
        for (case, value), group in groups.items():
            samples = [sample for each in group for sample in _samples(each, what)]
            if len({sample.x for sample in samples}) > 1:
                at = value if fixed == "devices" else f"batch {value}"
                yield _plot(f"{case}, {at}: samples per second by {what}", what, samples)


def _samples(timed: Timed, what: str) -> Iterator[Sample]:
    x = timed.batch if what == "batch" else parse(timed.devices).number
    for lane in timed.lanes:
        if x and lane.per_second and not lane.is_alone:
            yield Sample(lane.side, lane.name, x, lane.per_second)


def _plot(title: str, what: str, samples: Sequence[Sample]) -> Markup:
    lowest, highest = min(sample.y for sample in samples), max(sample.y for sample in samples)
    numbers = sorted({sample.x for sample in samples})

    def place(number: float, value: float) -> svg.Point:
        x, y = _share(number, numbers[0], numbers[-1]), _share(value, lowest, highest)
        return LEFT + x * (RIGHT - LEFT), BOTTOM - y * (BOTTOM - TOP)

    curves: dict[str, list[Sample]] = defaultdict(list)
    for sample in samples:
        curves[sample.name].append(sample)
    parts = [svg.text(LEFT, TOP - 8, title, "tick")]
    for value in dict.fromkeys((lowest, math.sqrt(lowest * highest), highest)):
        _, y = place(numbers[0], value)
        parts += [svg.line((LEFT, y), (RIGHT, y), "grid"), svg.text(LEFT - 8, y + 4, f"{value:.3g}", "tick", "end")]
    for number in numbers:
        x, bottom = place(number, lowest)
        parts.append(svg.text(x, bottom + 20, f"{what} {number}", "tick", "middle"))
    ends = []
    for name, curve in curves.items():
        ordered = sorted(curve, key=lambda sample: sample.x)
        points = [place(sample.x, sample.y) for sample in ordered]
        parts.append(svg.path(points, STYLES[curve[0].side]))
        for sample, (x, y) in zip(ordered, points, strict=True):
            said = f"{name}, {what} {sample.x}: {sample.y:.4g} samples per second"
            parts.append(svg.marked(x, y, "name", said))
        ends.append((points[-1][1], name))
    return svg.figure(WIDTH, HEIGHT, title, [*parts, *_names(ends)], "losses")


def _names(ends: Sequence[tuple[float, str]]) -> Iterator[Markup]:
    """Yield the name of each curve at its right end, moved down where it would stand on another."""
    free = 0.0
    for y, name in sorted(ends):
        free = max(y + 4, free + LINE)
        yield svg.text(RIGHT + 12, free, name, "tick")


def _share(value: float, low: float, high: float) -> float:
    """Return where a value lies between two others on a logarithmic scale, 0 to 1."""
    return math.log(value / low) / (math.log(high / low) or 1.0)
