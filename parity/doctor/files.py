"""The folder of an examination, in which each rank writes files while it runs and from which the parent reads.

RANK.evidence: what it observed, written at its end. RANK.calls: a line for each call that waits for other ranks,
written before the call. RANK.stack: its Python stack, if the parent asked for it. RANK.built: written once the program
is built; contains the folders of the user's, this project's and installed code (`ownership.Homes`). RANK.step-N: it has
ended step N. Each file is a sign of progress, after which the parent's patience starts anew.
"""

import faulthandler
import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from parity.core import ownership
from parity.doctor.evidence import Collective, Evidence, Waiting

POLL = 0.005  # seconds between two looks for a file
Written = TypeVar("Written", bound=msgspec.Struct)


class Files:
    def __init__(self, folder: Path, rank: int) -> None:
        self.folder, self.rank = folder, rank
        self.evidence = folder / f"{rank}.evidence"
        self.calls = folder / f"{rank}.calls"
        self.stack = folder / f"{rank}.stack"
        self._built = folder / f"{rank}.built"

    def answer_where(self) -> None:
        """From now on, dump the Python stack when the parent sends SIGUSR1, even while waiting in a library."""
        # The file is opened now, because a signal handler cannot open one.
        self._open = self.stack.open("w")
        faulthandler.register(signal.SIGUSR1, self._open, all_threads=False)

    def built(self) -> None:
        """Note that the program is built, and write where the code of its process lives."""
        self._built.write_bytes(_encoded(ownership.here()))

    def homes(self) -> ownership.Homes | None:
        """Return where the code of the rank's process lives, or None if its program is not built yet."""
        return next(_decoded(self._built, ownership.Homes), None)

    def ended(self, step: int | str) -> None:
        """Note that this rank has ended a step, or all steps ("all")."""
        self._mark(self.rank, step).touch()

    def meet(self, ranks: int, step: int) -> None:
        """Wait until all ranks have ended a step, by files: a collective could end up in the program's own queue."""
        self.ended(step)
        for rank in range(ranks):
            while not (self._mark(rank, step).exists() or self._mark(rank, "all").exists()):
                time.sleep(POLL)

    def write(self, evidence: Evidence) -> None:
        """Write the evidence atomically, in place of what was written before."""
        unfinished = self.evidence.with_suffix(".unfinished")
        unfinished.write_bytes(_encoded(evidence))
        unfinished.replace(self.evidence)

    def read(self) -> Evidence | None:
        """Return what the rank observed, or None if it did not come to an end."""
        return next(_decoded(self.evidence, Evidence), None)

    def note(self, call: Collective) -> None:
        """Note a call that is about to be made."""
        with self.calls.open("ab") as file:
            file.write(_encoded(call) + b"\n")

    def noted(self) -> list[Collective]:
        """Return the calls that were made or begun."""
        return list(_decoded(self.calls, Collective))

    def steps(self) -> int:
        """Return how many steps the rank has ended."""
        return len(list(self.folder.glob(f"{self.rank}.step-*")))

    def where(self) -> list[str]:
        """Return the stack that the rank dumped, as lines of Python, the innermost call first."""
        return [line.decode().strip() for line in _lines(self.stack) if line.startswith(b"  File")]

    def _mark(self, rank: int, step: int | str) -> Path:
        return self.folder / f"{rank}.step-{step}"


def _encoded(value: msgspec.Struct) -> bytes:
    """Return a value as one line of JSON, in Python's dialect."""
    # msgspec's own JSON has null for NaN and infinity, and fails for file names that are not UTF-8.
    return json.dumps(msgspec.to_builtins(value)).encode()


def _lines(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines() if path.exists() else []


def _decoded(path: Path, kind: type[Written]) -> Iterator[Written]:
    return (msgspec.convert(json.loads(line), kind) for line in _lines(path))


def waiting(ranks: list[Files]) -> list[Waiting]:
    """Return where each rank was; a rank that is further than another has ended the step in which the other is."""
    first = min(rank.steps() for rank in ranks)
    return [Waiting(rank=r.rank, ended=r.steps() > first, stack=r.where(), homes=r.homes()) for r in ranks]
