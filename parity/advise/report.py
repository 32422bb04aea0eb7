"""The advice as text, on a terminal of 80 columns or in a Markdown summary."""

import io
from collections.abc import Iterator
from typing import TextIO

from rich.table import Table

from parity.advise.choices import Advice, Document, Measured
from parity.core.groups import by_key
from parity.core.wording import agree
from parity.report.output import Console

PARTS = {"compute": "work", "imbalance": "uneven", "bubbles": "bubbles", "communication": "moved"}
CHECKED = ("measured", "off", "peak", "off")
BAR = 20  # characters of the longest bar of the plot


def show(document: Document, file: TextIO) -> None:
    console = Console(file)
    for advice in document.advice:
        for line in _headline(advice):
            console.print(line, soft_wrap=True)
        for side in ("torch", "keras"):
            console.print(_table(advice, side))
        for line in _notes(advice):
            console.print(line, soft_wrap=True)
        console.print()


def text(document: Document) -> str:
    """Return what `show` prints, as a block of Markdown."""
    file = io.StringIO()
    show(document, file)
    return f"```\n{file.getvalue()}```\n"


def _headline(advice: Advice) -> Iterator[str]:
    batch = f", batch {advice.batch}" if advice.batch else ""
    yield f"{advice.case}{batch}, {advice.devices}, {_bytes(advice.memory)} each"
    for side, best in advice.best.items():
        choice = next(each for each in advice.choices if (each.side, each.strategy) == (side, best))
        yield (
            f"  {side}: {best} is predicted to be the fastest that fits, {_seconds(choice.step)} a step, "
            f"{choice.speed_up:.2f} times single"
        )
    for side in {choice.side for choice in advice.choices} - set(advice.best):
        yield f"  {side}: nothing fits"


def _table(advice: Advice, side: str) -> Table:
    rows = [choice for choice in advice.choices if choice.side == side and not choice.why_not]
    checked = any(choice.measured for choice in rows)
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, title=side, title_justify="left")
    table.add_column("strategy", no_wrap=True)
    for heading in ("fits", "memory", "bytes", "step", "x", *(CHECKED if checked else PARTS.values())):
        table.add_column(heading, justify="right", no_wrap=True)
    for choice in sorted(rows, key=lambda each: (not each.fits, each.step or 0.0)):
        table.add_row(
            choice.strategy + (f" ({choice.micro_batches})" if choice.micro_batches > 1 else ""),
            "yes" if choice.fits else "no",
            _bytes(choice.peak if choice.peak is not None else max(choice.devices)),
            _bytes(sum(choice.sent.values())),
            _seconds(choice.step),
            f"{choice.speed_up:.2f}",
            *(_against(choice.measured) if choice.measured else [_seconds(choice.seconds[part]) for part in PARTS]),
        )
    return table


def _against(found: Measured) -> tuple[str, str, str, str]:
    """Return what was measured of a step and of the memory, each with how far its prediction is off."""
    return _seconds(found.seconds), f"{found.seconds_error:+z.0%}", _bytes(found.peak), f"{found.peak_error:+z.0%}"


def _notes(advice: Advice) -> Iterator[str]:
    """Yield the parts of the memory, what is not there and why, the plot, the assumptions and what would change it."""
    for choice in advice.choices:
        if advice.best.get(choice.side) == choice.strategy:
            parts = ", ".join(f"{name} {_bytes(size)}" for name, size in choice.memory.items() if size)
            yield f"{choice.side} {choice.strategy}, the device with the most: {parts}"
            if choice.sent:
                kinds = ", ".join(f"{name} {_bytes(size)}" for name, size in choice.sent.items())
                yield f"{choice.side} {choice.strategy}, sent in each step: {kinds}"
    for choice in advice.choices:
        if cut := choice.balanced:  # with the flags of compare and bench that cut the stages so
            sizes = ", ".join(map(str, cut.stage_blocks))
            flags = " ".join(f"--set {field}={value}" for field, value in cut.fields.items()).replace(", ", ",")
            what = f"{choice.side} {choice.strategy}, with {sizes} blocks in its stages"
            yield f"{what}: {_seconds(cut.step)} a step {flags}".rstrip()
    reasons = ((choice.why_not, f"{choice.strategy} ({choice.side})") for choice in advice.choices if choice.why_not)
    for reason, strategies in by_key(reasons).items():
        yield f"not {', '.join(strategies)}: {reason}"
    for side, points in advice.scaling.items():
        most = max((speed_up for *_, speed_up in points), default=1.0)
        for number, strategy, speed_up in points:
            bar = "█" * max(round(BAR * speed_up / most), 1)
            yield f"{side:5} {number:4} {agree(number, 'device'):7}  {bar:{BAR}} {speed_up:6.2f} x  {strategy}"
    yield from (f"assumed: {line}" for line in advice.assumed)
    yield from (f"would change the choice: {line}" for line in advice.would_change)


def _seconds(seconds: float | None) -> str:
    if seconds is None:
        return ""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e6:z.0f} µs" if seconds else "0"


def _bytes(size: float) -> str:
    for unit, large in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= large:
            return f"{size / large:.3g} {unit}"
    return f"{size:.0f} B" if size else "0"
