"""A benchmark on the terminal: a table for each case, with ratios first."""

from collections.abc import Iterator, Sequence
from typing import TextIO

from rich.padding import Padding
from rich.table import Table

from parity.bench.results import Benchmark, LaneTimes, Timed
from parity.core.wording import agree
from parity.report.console import Console

HEADINGS = ("", "ratio", "in 95%", "ms/step", "quartiles", "/s", "MiB", "first s")
PARTS = ("forward", "loss", "backward", "update", "copies")
INDENT = (0, 0, 0, 2)
PIPE_WIDTH = 100  # columns if the output is no terminal
LEGEND = (
    "ratio: time of a step to that of the first row, with the interval that holds the true one in 95 of 100 runs",
    "/s: samples of the data per second; MiB: most memory of a process or GPU; first: building, compiling, one step",
)


class Printed:
    """A benchmark that is printed while it runs."""

    def __init__(self, file: TextIO) -> None:
        self.console = Console(file, PIPE_WIDTH)

    def add(self, timed: Timed) -> None:
        """Print what was found of one case."""
        self.console.print(f"{title(timed)}: {timed.verdict}")
        if timed.reason:
            self.console.print(f"  not timed: {timed.reason}")
        if timed.lanes:
            self.console.print(_table(timed.lanes))
            for note in notes(timed):
                self.console.print(Padding(note, INDENT, expand=False))
        self.console.print()

    def end(self, benchmark: Benchmark) -> None:
        """Print what holds for all, and what has become slower."""
        for line in (str(benchmark.machine), *LEGEND):
            self.console.print(line)
        for line in benchmark.slower:
            self.console.print(f"slower: {line}", style="red")


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
        said = [*_parts(lane), *_sent(lane)]
        if lane.speed_up is not None and lane.efficiency is not None:
            said.append(f"{lane.speed_up:.2f} times as fast as single, {lane.efficiency:.0%} per device")
        said += [f"{lane.joules:.3g} J a step"] if lane.joules is not None else []
        said += [f"start {lane.start:.1f} s"] if lane.start is not None else []
        yield f"{full_name(lane)}: {'; '.join(said)}"


def _table(lanes: Sequence[LaneTimes]) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    for number, heading in enumerate(HEADINGS):
        table.add_column(heading, justify="right" if number else "left", no_wrap=bool(number))
    for lane in lanes:
        if cells := row(lane):
            table.add_row(f"  {full_name(lane)}", *cells)
    return table


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


def _parts(lane: LaneTimes) -> Iterator[str]:
    if lane.parts:
        shares = [(part, getattr(lane.parts, part)) for part in PARTS]
        yield ", ".join(f"{part} {value / lane.parts.step:.0%}" for part, value in shares if value)
        if (sent := lane.parts.communication) is not None:
            yield f"communicating during {sent / lane.parts.step:.0%} of the step"


def _sent(lane: LaneTimes) -> Iterator[str]:
    if lane.sent:
        yield ", ".join(f"{what} {number:,} {agree(number, 'byte')}" for what, number in lane.sent.items())
