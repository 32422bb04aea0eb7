"""The table of --layout: both device layouts of a case side by side."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from rich.console import Console
from rich.table import Table

from parity.core.wording import agree, count
from parity.layout.compare import flows
from parity.layout.declared import MAPPINGS
from parity.trace.layout import Layout

T = TypeVar("T")


def show(case: str, sides: dict[str, Layout], console: Console) -> None:
    """Print a row for each parameter, optimizer slot, module, transfer and collective that either side has."""
    layouts = list(sides.values())
    table = Table(title=f"{case}: device layouts", box=None, padding=(0, 1, 0, 0), title_justify="left")
    for heading in ("", *sides):
        table.add_column(heading, overflow="fold")
    table.add_row(
        "devices", *("\n".join(f"{n} = {name}" for n, name in enumerate(layout.devices)) for layout in layouts)
    )
    for row in _rows(layouts):
        table.add_row(*row)
    console.print()
    console.print(table)


def _rows(layouts: list[Layout]) -> Iterator[list[str]]:
    """Yield the label of each row, with a cell for each side."""
    for aspect in MAPPINGS:
        held = [getattr(layout, aspect) for layout in layouts]
        yield from _by_name(f"{aspect}: ", held, lambda devices: ", ".join(map(str, devices)))
    shards = [layout.shards for layout in layouts]
    yield from _by_name(
        "shards: ", shards, lambda sizes: f"{' + '.join(map(str, sizes))} {agree(sum(sizes), 'element')}"
    )
    yield from _by_name("", list(map(flows, layouts)), lambda size: count(size, "byte"))
    yield ["replicas", *(str(layout.replicas) for layout in layouts)]


def _by_name(label: str, held: Sequence[Mapping[str, T]], said: Callable[[T], str]) -> Iterator[list[str]]:
    """Yield a row for each name that either side holds something by, with "-" where a side holds nothing."""
    for name in dict.fromkeys(name for of_side in held for name in of_side):
        yield [f"{label}{name}", *(said(of_side[name]) if name in of_side else "-" for of_side in held)]
