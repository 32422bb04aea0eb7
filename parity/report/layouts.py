"""Both device layouts of a case, side by side."""

from rich.console import Console
from rich.table import Table

from parity.layout.canonical import Layout

MAPPINGS = ("parameters", "optimizer_state", "compute", "backward")


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
            rows.append((f"{aspect.replace('_', ' ')} {name}", _devices(here.get(name)), _devices(there.get(name))))
    flows, others = _flows(one), _flows(other)
    rows += [(label, flows.get(label, "-"), others.get(label, "-")) for label in {**flows, **others}]
    return [*rows, ("replicas", str(one.replicas), str(other.replicas))]


def _flows(layout: Layout) -> dict[str, str]:
    """Transfers and collectives with their bytes."""
    copies = {f"{one.what} {one.source} -> {one.target}": f"{one.bytes} bytes" for one in layout.transfers}
    return copies | {name: f"{size} bytes" for name, size in layout.collectives.items()}


def _devices(devices: list[int] | None) -> str:
    return "-" if devices is None else ", ".join(map(str, devices))


def _numbered(devices: list[str]) -> list[str]:
    return [f"{number} = {name}" for number, name in enumerate(devices)]
