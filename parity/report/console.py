"""The console on which reports are printed."""

from typing import TextIO

import rich.console


class Console(rich.console.Console):
    """A rich console that prints text without markup; `pipe_width` is its width if the output is no terminal."""

    def __init__(self, file: TextIO, pipe_width: int) -> None:
        super().__init__(file=file, markup=False, highlight=False, emoji=False)
        if not self.is_terminal:
            self.width = pipe_width

    def on_broken_pipe(self) -> None:
        """Raise BrokenPipeError again; rich itself would exit with status 1, which here means "diverged"."""
        raise
