"""Both device layouts of a case, side by side."""

from rich.console import Console
from rich.table import Table

from parity.layout.compare import flows
from parity.layout.declared import MAPPINGS
from parity.trace.layout import Layout


def show(case: str, sides: dict[str, Layout], console: Console) -> None:
    """One row for every parameter, slot, module, transfer and collective that either side has."""
    one, other = sides.values()
    table = Table(title=f"{case}: device layouts", box=None, padding=(0, 1, 0, 0), title_justify="left")
    for heading in ("", *sides):
        table.add_column(heading, overflow="fold")
    table.add_row("devices", *("\n".join(_numbered(layout.devices)) for layout in (one, other)))
    for label, here, there in _rows(one, other):
        table.add_row(label, here, there)
    console.print()
    console.print(table)


def _rows(one: Layout, other: Layout) -> list[tuple[str, str, str]]:
    rows = []
    for aspect in MAPPINGS:
        here, there = getattr(one, aspect), getattr(other, aspect)
        for name in {**here, **there}:
            rows.append((f"{aspect}: {name}", _devices(here.get(name)), _devices(there.get(name))))
    here, there = flows(one), flows(other)
    rows += [(label, _bytes(here.get(label)), _bytes(there.get(label))) for label in {**here, **there}]
    return [*rows, ("replicas", str(one.replicas), str(other.replicas))]


def _bytes(size: int | None) -> str:
    return "-" if size is None else f"{size} bytes"


def _devices(devices: list[int] | None) -> str:
    return "-" if devices is None else ", ".join(map(str, devices))


def _numbered(devices: list[str]) -> list[str]:
    return [f"{number} = {name}" for number, name in enumerate(devices)]
