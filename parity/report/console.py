"""The console on which reports are printed, and its line while a command works: how much is done, and what runs."""

import contextlib
import textwrap
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, TextIO

import rich.console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from parity.core.wording import agree

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
