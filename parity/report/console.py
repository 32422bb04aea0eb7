"""The console on which reports are printed, its line while a command works, and the table of --layout."""

import contextlib
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TextIO, TypeVar

import rich.console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from parity.core.wording import agree, count
from parity.layout.compare import flows
from parity.layout.declared import MAPPINGS
from parity.trace.layout import Layout

UNBROKEN: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}  # so that paths can be copied


class Console(rich.console.Console):
    """A rich console that prints text without markup; `pipe_width` is its width if the output is no terminal."""

    def __init__(self, file: TextIO, pipe_width: int) -> None:
        super().__init__(file=file, markup=False, highlight=False, emoji=False)
        if not self.is_terminal:
            self.width = pipe_width

    def fold(self, text: str, **options: Any) -> None:
        """Print lines of text, folded to the console's width, each with its indentation."""
        for line in text.splitlines():
            indent = " " * (len(line) - len(line.lstrip()))
            folded = textwrap.wrap(line, self.width, subsequent_indent=indent, **UNBROKEN)
            self.print("\n".join(folded), soft_wrap=True, **options)

    def on_broken_pipe(self) -> None:
        """Raise BrokenPipeError again; rich itself would exit with status 1, which here means "diverged"."""
        raise


@contextlib.contextmanager
def progress(
    what: str, total: int, noun: str, doing: Callable[[], Mapping[str, str]], table: rich.console.Console | None = None
) -> Iterator[Callable[[], None]]:
    """Show the line within the block, on a terminal only; provide the function that counts one of `total` as done.

    Args:
        what: what the command does, e.g. "comparing".
        total: of how many.
        noun: what is counted, e.g. "case".
        doing: returns what is running at present, by side.
        table: the console on which results are printed meanwhile. If it is a terminal, the line is shown below them,
            else on stderr.
    """
    columns = (
        TextColumn(what),
        BarColumn(20),
        MofNCompleteColumn(),
        TextColumn(agree(total, noun)),
        TimeRemainingColumn(),
    )
    # The files are asked: FORCE_COLOR makes a console call itself a terminal where it writes to a log.
    console = table if table and table.file.isatty() else rich.console.Console(stderr=True)
    line = Progress(*columns, _Doing(doing), console=console, transient=True, disable=not console.file.isatty())
    with line:
        yield partial(line.advance, line.add_task("", total=total))


class _Doing(ProgressColumn):
    """What is running at present, cut where the terminal ends."""

    max_refresh = 0.5  # seconds

    def __init__(self, doing: Callable[[], Mapping[str, str]]) -> None:
        super().__init__()
        self._doing = doing

    def render(self, task: Task) -> Text:
        """Return it as `side: cases` for each side."""
        running = "  ".join(f"{side}: {cases}" for side, cases in self._doing().items() if cases)
        return Text(running, style="dim", no_wrap=True, overflow="ellipsis")


T = TypeVar("T")


def show_layouts(case: str, sides: dict[str, Layout], console: Console) -> None:
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
