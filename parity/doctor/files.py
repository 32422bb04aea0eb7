"""The folder of an examination: what each rank writes there while it runs, and the parent reads afterwards.

RANK.evidence: what it saw, when it is over. RANK.calls: a line for each call that waits for other ranks, written
before the call. RANK.stack: where it is, if the parent has to ask. RANK.built: its program is, and whose files are
whose. RANK.step-N: it has ended its step N. Each of them is progress, after which the parent's patience begins anew.
"""

import faulthandler
import signal
import time
from pathlib import Path

import msgspec

from parity.doctor import ownership
from parity.doctor.evidence import Collective, Evidence, Waiting

POLL = 0.005  # seconds


class Files:
    """Those of one rank."""

    def __init__(self, folder: Path, rank: int) -> None:
        self.folder, self.rank = folder, rank
        self.evidence = folder / f"{rank}.evidence"
        self.calls = folder / f"{rank}.calls"
        self.stack = folder / f"{rank}.stack"
        self._built = folder / f"{rank}.built"

    def answer_where(self) -> None:
        """From now on the parent's question is answered, even while the process waits in a library."""
        # The file stays open: nothing can be opened when it is needed.
        self._open = self.stack.open("w")
        faulthandler.register(signal.SIGUSR1, self._open, all_threads=False)

    def built(self) -> None:
        """The program is built, and it is known whose files are whose."""
        self._built.write_bytes(msgspec.json.encode(ownership.here()))

    def homes(self) -> ownership.Homes | None:
        """Whose files are whose in the rank's process; None if its program is not built."""
        written = self._built.read_bytes() if self._built.exists() else b""
        return msgspec.json.decode(written, type=ownership.Homes) if written else None

    def ended(self, step: int | str) -> None:
        """This rank has ended its step, or all that are watched ("all")."""
        self._mark(self.rank, step).touch()

    def meet(self, ranks: int, step: int) -> None:
        """Wait until all ranks have ended a step: by files, which no library's queue can confuse."""
        self.ended(step)
        for rank in range(ranks):
            while not (self._mark(rank, step).exists() or self._mark(rank, "all").exists()):
                time.sleep(POLL)

    def write(self, evidence: Evidence) -> None:
        """In one go, in place of what was written before."""
        unfinished = self.evidence.with_suffix(".unfinished")
        unfinished.write_bytes(msgspec.json.encode(evidence))
        unfinished.replace(self.evidence)

    def read(self) -> Evidence | None:
        """What the rank saw, if it came to an end."""
        if not self.evidence.exists():
            return None
        return msgspec.json.decode(self.evidence.read_bytes(), type=Evidence)

    def note(self, call: Collective) -> None:
        """A call is about to be made."""
        with self.calls.open("ab") as file:
            file.write(msgspec.json.encode(call) + b"\n")

    def noted(self) -> list[Collective]:
        """The calls that were made or begun."""
        lines = self.calls.read_bytes().splitlines() if self.calls.exists() else []
        return [msgspec.json.decode(line, type=Collective) for line in lines]

    def steps(self) -> int:
        """How many steps the rank has ended."""
        return len(list(self.folder.glob(f"{self.rank}.step-*")))

    def where(self) -> list[str]:
        """Where the rank was when it was asked, as lines of a Python stack, the innermost call first."""
        lines = self.stack.read_text().splitlines() if self.stack.exists() else []
        return [line.strip() for line in lines if line.startswith("  File")]

    def _mark(self, rank: int, step: int | str) -> Path:
        return self.folder / f"{rank}.step-{step}"


def waiting(ranks: list[Files]) -> list[Waiting]:
    """Where each rank was; one that is further than another has ended the step that the other is in."""
    first = min(rank.steps() for rank in ranks)
    return [
        Waiting(rank=rank.rank, ended=rank.steps() > first, stack=rank.where(), homes=rank.homes()) for rank in ranks
    ]
