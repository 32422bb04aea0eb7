"""Where results go: the files of a command, JSON above all, and the console, with its line while a command works.

A command checks the paths before its work begins, and writes the files when it ends, also where it is stopped.
"""

import argparse
import contextlib
import os
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, TextIO, TypeVar

import msgspec
import rich.console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from parity.core import process
from parity.core.errors import UsageError, printable
from parity.core.wording import agree, count
from parity.layout import flows
from parity.layout.declared import MAPPINGS
from parity.trace.layout import Layout

FORMATS = {
    "html": "one page that loads nothing, to be opened in a browser",
    "junit": "JUnit's XML, which CI systems show as tests",
    "sarif": "SARIF 2.1.0, what has a file and line, for code scanning",
}
SUMMARY = "GITHUB_STEP_SUMMARY"  # names the file to which a step of a GitHub workflow appends Markdown
T = TypeVar("T")
Makers = Mapping[str, Callable[[], str]]  # by format, what makes its text


def add_flags(parser: argparse.ArgumentParser, what: str, *formats: str) -> None:
    """Add the flag of the JSON file, and those of the formats; `what` is written, e.g. "the findings"."""
    add = parser.add_argument
    add("--json", metavar="FILE", help=f"write {what} to this file; - for stdout (the text then goes to stderr)")
    for name in formats:
        add(f"--{name}", metavar="FILE", help=f"write {what} to this file: {FORMATS[name]}")


def check(args: argparse.Namespace) -> None:
    """Check that every file can be written. Raises UsageError."""
    paths = _paths(args)
    for name, path in paths.items():
        if path in ("", "-"):
            raise UsageError(f"--{name}={path}: expected the name of a file")
        if others := [other for other, same in paths.items() if other != name and Path(same) == Path(path)]:
            raise UsageError(f"--{name}={path}: --{others[0]} names the same file; give each a file of its own")
        existed = Path(path).exists()
        _put(f"--{name}", path, b"", "ab")
        if not existed:  # leave no empty file behind that looks like a report
            Path(path).unlink()


def write(args: argparse.Namespace, document: msgspec.Struct | dict[str, Any], makers: Makers) -> None:
    """Write the JSON document and the files that the flags name, and append the summary of a GitHub step.

    `makers` has those of the formats, and that of the summary as "markdown". Raises UsageError.
    """
    if args.json is not None:
        write_json(document, args.json)
    for name, path in _paths(args).items():
        if name != "json":
            _put(f"--{name}", path, printable(makers[name]()).encode())
    if summary := os.environ.get(SUMMARY):
        text = printable(makers["markdown"]()).encode()
        try:
            _put(SUMMARY, summary, text, "ab")
        except UsageError as error:  # nobody has asked this program for it, so that a failure only prints a line
            process.tell(f"no summary: {error}")


@contextlib.contextmanager
def written(
    args: argparse.Namespace,
    report: Any,
    makers: Makers,
    document: Callable[[], msgspec.Struct | dict[str, Any]] | None = None,
    failed: Callable[[str], None] | None = None,
    show: Callable[[], None] = lambda: None,
) -> Iterator[None]:
    """Write everything when the block ends, also by a signal or an error, lest what is known by then be lost.

    `document`: returns the JSON document, if that is not the report. `failed` is called with what such an error says,
    which is else the report's `error`. `show` prints the report where there was none: last, since printing may fail.
    """
    document = document or (lambda: report)
    try:
        yield
    except BaseException as error:
        (failed or partial(setattr, report, "error"))(str(error) or type(error).__name__)
        write(args, document(), makers)
        raise
    try:
        write(args, document(), makers)
    finally:
        show()


def _paths(args: argparse.Namespace) -> dict[str, str]:
    named = {name: getattr(args, name, None) for name in ("json", *FORMATS)}
    return {name: path for name, path in named.items() if path is not None and (name, path) != ("json", "-")}


def _put(flag: str, path: str, content: bytes, mode: Literal["wb", "ab"] = "wb") -> None:
    """Write the file of a flag. Raises UsageError if it cannot be written."""
    try:
        with Path(path).open(mode) as file:
            file.write(content)
    except (OSError, ValueError) as error:  # ValueError: the path holds a NUL character
        raise UsageError(f"{flag}={path}: cannot be written: {error}") from None


def write_json(report: msgspec.Struct | dict[str, Any], path: str) -> None:
    """Write a report to a file, or to stdout if `path` is "-". Raises UsageError if it cannot be written."""
    # msgspec writes NaN and infinity as null.
    text = msgspec.json.format(as_json(report), indent=2) + b"\n"
    if path != "-":
        _put("--json", path, text)
    elif binary := getattr(sys.stdout, "buffer", None):  # JSON is UTF-8, whatever the encoding of the terminal
        sys.stdout.flush()
        binary.write(text)
        binary.flush()
    else:
        sys.stdout.write(text.decode())


def as_json(report: msgspec.Struct | dict[str, Any]) -> bytes:
    """Return a report as JSON without spaces."""
    try:
        return msgspec.json.encode(report)
    except UnicodeEncodeError:  # a name or message holds a lone surrogate, e.g. from an undecodable file name
        return msgspec.json.encode(_writable(msgspec.to_builtins(report)))


def _writable(value: Any) -> Any:
    """Return a copy of a value made of builtins in which UTF-8 can encode all strings."""
    match value:
        case str():
            return printable(value)
        case dict():
            return {_writable(key): _writable(inner) for key, inner in value.items()}
        case list():
            return [_writable(inner) for inner in value]
    return value


class Console(rich.console.Console):
    """A rich console that prints text without markup; `pipe_width` is its width if the output is no terminal."""

    def __init__(self, file: TextIO, pipe_width: int = 100) -> None:
        super().__init__(file=file, markup=False, highlight=False, emoji=False)
        if not self.is_terminal:
            self.width = pipe_width

    def fold(self, text: str, **options: Any) -> None:
        """Print lines of text, folded to the console's width, each with its indentation."""
        # Words are never broken, so that paths can be copied.
        wrapper = textwrap.TextWrapper(self.width, break_long_words=False, break_on_hyphens=False)
        for line in text.splitlines():
            wrapper.subsequent_indent = " " * (len(line) - len(line.lstrip()))
            self.print(wrapper.fill(line), soft_wrap=True, **options)

    def on_broken_pipe(self) -> None:
        """Raise BrokenPipeError again; rich itself would exit with status 1, which here means "diverged"."""
        raise


@contextlib.contextmanager
def progress(
    what: str, total: int, noun: str, doing: Callable[[], Mapping[str, str]], table: rich.console.Console | None = None
) -> Iterator[Callable[[], None]]:
    """Show the line within the block, on a terminal only; provide the function that counts one of `total` as done.

    `what`: what the command does, e.g. "comparing". `noun`: what is counted, e.g. "case". `doing`: returns what is
    running at present, by side. `table`: the console on which results are printed meanwhile; if it is a terminal, the
    line is shown below them, else on stderr.
    """
    counted = MofNCompleteColumn(), TextColumn(agree(total, noun))
    columns = TextColumn(what), BarColumn(20), *counted, TimeRemainingColumn()
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


def show_layouts(case: str, sides: dict[str, Layout], console: Console) -> None:
    """Print a row for each parameter, optimizer slot, module, transfer and collective that either side has."""
    layouts = list(sides.values())
    table = Table(title=f"{case}: device layouts", box=None, padding=(0, 1, 0, 0), title_justify="left")
    for heading in ("", *sides):
        table.add_column(heading, overflow="fold")
    table.add_row("devices", *("\n".join(f"{n} = {name}" for n, name in enumerate(each.devices)) for each in layouts))
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
    yield from _by_name("shards: ", shards, lambda held: f"{' + '.join(map(str, held))} {agree(sum(held), 'element')}")
    yield from _by_name("", list(map(flows, layouts)), lambda size: count(size, "byte"))
    yield ["replicas", *(str(layout.replicas) for layout in layouts)]


def _by_name(label: str, held: Sequence[Mapping[str, T]], said: Callable[[T], str]) -> Iterator[list[str]]:
    """Yield a row for each name that either side holds something by, with "-" where a side holds nothing."""
    for name in dict.fromkeys(name for of_side in held for name in of_side):
        yield [f"{label}{name}", *(said(of_side[name]) if name in of_side else "-" for of_side in held)]
