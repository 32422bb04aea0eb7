"""A side of a pair's file that is judged against the file's first one, as a subject."""

import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from parity.config.sides import Side
from parity.core.errors import UsageError
from parity.pairs.sides.compare import SidesOfPair
from parity.results import CaseResult, Report
from parity.runtime.job import Answer
from parity.runtime.plan import Plan
from parity.runtime.runner import Worker
from parity.subjects.subject import Subject, note_environment
from parity.trace.manifest import Trace


class SidePair(Subject):
    """A side, `candidate`, beside the first side of its file, with which `sides` compares it.

    The sides have processes of their own: those that `compared` is given are not used.
    """

    keras_needs_torch = False

    def __init__(self, sides: SidesOfPair, candidate: Side) -> None:
        self._sides, self._candidate = sides, candidate
        file = sides.file
        self.case = replace(file.case, name=sides.case(candidate))
        self.flags = [*file.flags[:-1], f"--sides={file.sides[0].name},{candidate.name}"]
        self.again = " ".join(map(shlex.quote, self.flags))

    def compared(self, sides: Sequence[Worker], plan: Plan, report: Report) -> CaseResult:
        """Record what is not recorded yet, and compare."""
        result = self._sides.compared(self._candidate)
        if result.verdict != "error":
            folders = (self._sides.folder / side.name for side in (self._sides.file.sides[0], self._candidate))
            note_environment([Trace(folder) for folder in folders], report)
        if not plan.kept:
            shutil.rmtree(self._sides.folder / self._candidate.name, ignore_errors=True)
        return result

    def record(self, side: Worker, folder: Path, summarises: bool = False) -> Answer:
        """Refuse to record one framework's half, which a side of a file is not. Raises UsageError."""
        raise UsageError(f"{self.case.name}: sides are recorded by parity.compare --sides, with --keep=DIR")

    def record_candidate(self, side: Worker, folder: Path, golden: Path) -> Answer:
        """Refuse to record for a golden trace. Raises UsageError."""
        return self.record(side, folder)


def subjects(sides: SidesOfPair) -> list[SidePair]:
    """Return a subject for each side of a file but its first."""
    return [SidePair(sides, candidate) for candidate in sides.file.sides[1:]]
