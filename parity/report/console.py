"""The console on which reports are printed."""

import textwrap
from typing import Any, TextIO

import rich.console

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
