"""A line on the terminal while a command works: how much is done, about how long the rest takes, and what runs."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from parity.core.wording import agree


@contextlib.contextmanager
def shown(
    what: str, total: int, noun: str, doing: Callable[[], Mapping[str, str]], table: Console | None = None
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
    console = table if table and table.file.isatty() else Console(stderr=True)
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
