"""A benchmark on the terminal, as a page and as Markdown: a table for each case, with ratios first.

A sweep also has curves: samples per second by batch or by devices.
"""

import math
from collections.abc import Iterator, Sequence

from markupsafe import Markup
from rich.padding import Padding
from rich.table import Table

from parity.bench.results import Benchmark, LaneTimes, Timed
from parity.config.devices import parse
from parity.core.clock import PARTS
from parity.core.groups import by_key
from parity.core.wording import agree, count
from parity.report import ci, html, words
from parity.report.html import svg
from parity.report.output import Console, Makers

HEADINGS = ("", "ratio", "in 95%", "ms/step", "quartiles", "/s", "MiB", "first s")
LEGEND = (
    "ratio: time of a step to that of the first row, with the interval that holds the true one in 95 of 100 runs",
    "/s: samples of the data per second; MiB: most memory of a process or GPU; first: building, compiling, one step",
)
WIDTH, HEIGHT = 960.0, 300.0
LEFT, RIGHT, TOP, BOTTOM = 84.0, 760.0, 24.0, 250.0  # names stand to the right of the curves
LINE = 16.0  # units between two names at least
STYLES = {"torch": "reference", "keras": "candidate"}


def show_timed(console: Console, timed: Timed) -> None:
    """Print what was found of one case."""
    console.print(f"{title(timed)}: {timed.verdict}")
    if timed.reason:
        console.print(f"  not timed: {timed.reason}")
    if timed.lanes:
        table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
        for number, heading in enumerate(HEADINGS):
            table.add_column(heading, justify="right" if number else "left", no_wrap=bool(number))
        for name, *cells in _rows(timed):
            table.add_row(f"  {name}", *cells)
        console.print(table)
        for note in notes(timed):
            console.print(Padding(note, (0, 0, 0, 2), expand=False))
    console.print()


def show_end(console: Console, benchmark: Benchmark) -> None:
    """Print what holds for all, and what has become slower."""
    for line in (str(benchmark.machine), *LEGEND):
        console.print(line)
    for line in benchmark.slower:
        console.print(f"slower: {line}", style="red")


def title(timed: Timed) -> str:
    """Return the name of a case with what was varied of it."""
    return ", ".join([timed.case, *([f"batch {timed.batch}"] if timed.batch else []), timed.devices])


def full_name(lane: LaneTimes) -> str:
    """Return the name of a row, with its strategy where it is that of a single device."""
    return f"{lane.name}, {lane.strategy}" if lane.is_alone else lane.name


def notes(timed: Timed) -> Iterator[str]:
    """Yield what a table does not hold: parts, bytes, speed-up, start, energy, and what could not be timed."""
    for lane in timed.lanes:
        if lane.why_not:
            yield f"{full_name(lane)}: not timed: {lane.why_not}"
            continue
        said: list[str] = []
        if lane.parts:
            shares = [(part, getattr(lane.parts, part)) for part in PARTS]
            said.append(", ".join(f"{part} {value / lane.parts.step:.0%}" for part, value in shares if value))
            if (sent := lane.parts.communication) is not None:
                said.append(f"communicating during {sent / lane.parts.step:.0%} of the step")
        if lane.sent:
            said.append(", ".join(f"{what} {number:,} {agree(number, 'byte')}" for what, number in lane.sent.items()))
        if lane.speed_up is not None and lane.efficiency is not None:
            said.append(f"{lane.speed_up:.2f} times as fast as single, {lane.efficiency:.0%} per device")
        said += [f"{lane.joules:.3g} J a step"] if lane.joules is not None else []
        said += [f"start {lane.start:.1f} s"] if lane.start is not None else []
        yield f"{full_name(lane)}: {'; '.join(said)}"


def row(lane: LaneTimes) -> list[str]:
    """Return the cells of a row after its name; none where nothing was timed."""
    if lane.step is None or lane.ratio is None or lane.quartiles is None:
        return []
    return [
        f"{lane.ratio.middle:.2f}",
        "" if lane.ratio.low == lane.ratio.high == 1 else f"{lane.ratio.low:.2f}-{lane.ratio.high:.2f}",
        _milliseconds(lane.step.middle),
        "-".join(map(_milliseconds, lane.quartiles)),
        f"{lane.per_second:.0f}" if lane.per_second else "-",
        f"{(lane.peak or 0) / 2**20:.0f}",
        f"{lane.first:.1f}",
    ]


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.3g}" if seconds < 1 else f"{seconds * 1e3:.0f}"


def makers(benchmark: Benchmark) -> Makers:
    return {"html": lambda: _page(benchmark), "markdown": lambda: _markdown(benchmark)}


def headline(benchmark: Benchmark) -> str:
    if benchmark.slower:
        return f"{count(len(benchmark.slower), 'time')} {agree(len(benchmark.slower), 'is')} slower than before."
    if wrong := [timed.case for timed in benchmark.timed if timed.reason]:
        return f"Not timed, because the two sides do not compute the same: {', '.join(dict.fromkeys(wrong))}."
    number, processor = len(benchmark.timed), benchmark.machine.processor
    return f"{count(number, 'training')} {agree(number, 'was')} timed on {processor}."


def _page(benchmark: Benchmark) -> str:
    failed = benchmark.slower or benchmark.error or any(timed.reason for timed in benchmark.timed)
    verdict = "diverged" if failed else "match"
    banner = html.Banner(verdict, words.MARKS[verdict], benchmark.error or headline(benchmark), benchmark.command)
    found = [(title(each), each.verdict, each.reason, _rows(each), list(notes(each))) for each in benchmark.timed]
    drawn = list(plots(benchmark.timed))
    headings = ("training", *HEADINGS[1:])
    times = html.part("bench", found=found, headings=headings, legend=LEGEND, curves=drawn, run=benchmark)
    sections = [
        ("times", "Time of a step", times),
        ("environment", "Environment", html.part("bench_machine", run=benchmark)),
    ]
    return html.render("Benchmark", banner, sections, benchmark)


def _rows(timed: Timed) -> list[list[str]]:
    return [[full_name(lane), *cells] for lane in timed.lanes if (cells := row(lane))]


def _markdown(benchmark: Benchmark) -> str:
    tables: list[str] = []
    for timed in benchmark.timed:
        tables.append(f"\n{ci.escaped(title(timed))}: {timed.verdict} {ci.escaped(timed.reason)}\n")
        tables += ci.table(HEADINGS, _rows(timed)) if timed.lanes else []
    return ci.document(headline(benchmark), tables, map(ci.escaped, benchmark.slower))


Sample = tuple[tuple[str, str], tuple[int, float]]  # side and name of its curve; where it lies, and samples per second


def plots(timed: Sequence[Timed]) -> Iterator[Markup]:
    """Yield a plot for each case and number of devices by batch, and for each case and batch by devices."""
    for what, fixed in (("batch", "devices"), ("devices", "batch")):
        groups = by_key(((each.case, getattr(each, fixed)), each) for each in timed)
        for (case, value), group in groups.items():
            samples = [sample for each in group for sample in _samples(each, what)]
            if len({x for _, (x, _) in samples}) > 1:
                at = value if fixed == "devices" else f"batch {value}"
                yield _plot(f"{case}, {at}: samples per second by {what}", what, samples)


def _samples(timed: Timed, what: str) -> Iterator[Sample]:
    x = timed.batch if what == "batch" else parse(timed.devices).number
    for lane in timed.lanes:
        if x and lane.per_second and not lane.is_alone:
            yield (lane.side, lane.name), (x, lane.per_second)


def _plot(heading: str, what: str, samples: Sequence[Sample]) -> Markup:
    rates = [rate for _, (_, rate) in samples]
    lowest, highest, numbers = min(rates), max(rates), sorted({x for _, (x, _) in samples})
    x_of = svg.Axis(math.log(numbers[0]), math.log(numbers[-1]), LEFT, RIGHT)
    y_of = svg.Axis(math.log(lowest), math.log(highest), BOTTOM, TOP)
    parts = [svg.text(LEFT, TOP - 8, heading, "tick")]
    for value in dict.fromkeys((lowest, math.sqrt(lowest * highest), highest)):
        parts += svg.gridline(y_of(math.log(value)), LEFT, RIGHT, f"{value:.3g}")
    for number in numbers:
        parts.append(svg.text(x_of(math.log(number)), BOTTOM + 20, f"{what} {number}", "tick", "middle"))
    ends = []
    for (side, name), curve in by_key(samples).items():
        ordered = sorted(curve, key=lambda point: point[0])
        points = [(x_of(math.log(x)), y_of(math.log(rate))) for x, rate in ordered]
        parts.append(svg.path(points, STYLES[side]))
        for (x, rate), point in zip(ordered, points, strict=True):
            parts.append(svg.marked(*point, "name", f"{name}, {what} {x}: {rate:.4g} samples per second"))
        ends.append((points[-1][1], name))
    return svg.figure(WIDTH, HEIGHT, heading, [*parts, *_names(ends)], "losses")


def _names(ends: Sequence[tuple[float, str]]) -> Iterator[Markup]:
    """Yield the name of each curve at its right end, moved down where it would stand on another."""
    free = 0.0
    for y, name in sorted(ends):
        free = max(y + 4, free + LINE)
        yield svg.text(RIGHT + 12, free, name, "tick")
