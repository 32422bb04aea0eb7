"""The table of --layout: both device layouts of a case side by side."""

from rich.console import Console
from rich.table import Table

from parity.layout.compare import flows
from parity.layout.declared import MAPPINGS
from parity.trace.layout import Layout


def show(case: str, sides: dict[str, Layout], console: Console) -> None:
    """Print a row for each parameter, optimizer slot, module, transfer and collective that either side has."""
    left, right = sides.values()
    table = Table(title=f"{case}: device layouts", box=None, padding=(0, 1, 0, 0), title_justify="left")
    for heading in ("", *sides):
        table.add_column(heading, overflow="fold")
    table.add_row("devices", *("\n".join(_numbered(layout.devices)) for layout in (left, right)))
    for label, ours, theirs in _rows(left, right):
        table.add_row(label, ours, theirs)
    console.print()
    console.print(table)


def _rows(left: Layout, right: Layout) -> list[tuple[str, str, str]]:
    rows = []
    for aspect in MAPPINGS:
        ours, theirs = getattr(left, aspect), getattr(right, aspect)
        for name in {**ours, **theirs}:
            rows.append((f"{aspect}: {name}", _devices(ours.get(name)), _devices(theirs.get(name))))
    ours, theirs = flows(left), flows(right)
    rows += [(label, _bytes(ours.get(label)), _bytes(theirs.get(label))) for label in {**ours, **theirs}]
    return [*rows, ("replicas", str(left.replicas), str(right.replicas))]


def _bytes(size: int | None) -> str:
    return "-" if size is None else f"{size} bytes"


def _devices(devices: list[int] | None) -> str:
    return "-" if devices is None else ", ".join(map(str, devices))


def _numbered(devices: list[str]) -> list[str]:
    return [f"{number} = {name}" for number, name in enumerate(devices)]
