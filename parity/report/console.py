"""The console that every report is printed on."""

from typing import TextIO

import rich.console


class Console(rich.console.Console):
    """A rich console that prints text as it is. `pipe_width`: columns where there is no terminal."""

    def __init__(self, file: TextIO, pipe_width: int) -> None:
        super().__init__(file=file, markup=False, highlight=False, emoji=False)
        if not self.is_terminal:
            self.width = pipe_width

    def on_broken_pipe(self) -> None:
        """Raise BrokenPipeError: rich would end the program with status 1, which reads as "diverged"."""
        raise
