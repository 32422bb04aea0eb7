"""The table of --layout: both device layouts of a case side by side."""

from collections.abc import Iterator

from rich.console import Console
from rich.table import Table

from parity.core.wording import agree, count
from parity.layout.compare import flows
from parity.layout.declared import MAPPINGS
from parity.trace.layout import Layout


def show(case: str, sides: dict[str, Layout], console: Console) -> None:
    """Print a row for each parameter, optimizer slot, module, transfer and collective that either side has."""
    layouts = list(sides.values())
    table = Table(title=f"{case}: device layouts", box=None, padding=(0, 1, 0, 0), title_justify="left")
    for heading in ("", *sides):
        table.add_column(heading, overflow="fold")
    table.add_row("devices", *("\n".join(_numbered(layout.devices)) for layout in layouts))
    for row in _rows(layouts):
        table.add_row(*row)
    console.print()
    console.print(table)


def _rows(layouts: list[Layout]) -> Iterator[list[str]]:
    """Yield the label of each row, with a cell for each side."""
    for aspect in MAPPINGS:
        held = [getattr(layout, aspect) for layout in layouts]
        for name in dict.fromkeys(name for mapping in held for name in mapping):
            yield [f"{aspect}: {name}", *(_devices(mapping.get(name)) for mapping in held)]
    for name in dict.fromkeys(name for layout in layouts for name in layout.shards):
        yield [f"shards: {name}", *(_elements(layout.shards.get(name)) for layout in layouts)]
    sizes = [flows(layout) for layout in layouts]
    for label in dict.fromkeys(label for of_side in sizes for label in of_side):
        yield [label, *(_bytes(of_side.get(label)) for of_side in sizes)]
    yield ["replicas", *(str(layout.replicas) for layout in layouts)]


def _bytes(size: int | None) -> str:
    return "-" if size is None else count(size, "byte")


def _elements(sizes: list[int] | None) -> str:
    return "-" if sizes is None else f"{' + '.join(map(str, sizes))} {agree(sum(sizes), 'element')}"


def _devices(devices: list[int] | None) -> str:
    return "-" if devices is None else ", ".join(map(str, devices))


def _numbered(devices: list[str]) -> list[str]:
    return [f"{number} = {name}" for number, name in enumerate(devices)]
