"""What the commands ask of a built-in case and of a pair alike."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from parity.config.schema import Case
from parity.core.errors import BackendError, UsageError
from parity.results import CaseResult, Report
from parity.runtime.job import Answer
from parity.runtime.plan import Plan
from parity.runtime.runner import Worker
from parity.trace.manifest import Trace
from parity.verdict.traces import side_names

S = TypeVar("S", bound=Worker)


class Subject(ABC):
    """A built-in case or a pair.

    `case`: its settings. `flags`: what chooses it on a command line; `again`: with what changes how it is trained,
    quoted for a shell. `keras_needs_torch`: whether Keras's recording
    reads torch's.
    """

    case: Case
    flags: Sequence[str]
    again: str
    keras_needs_torch: bool

    def able(self, sides: Sequence[S]) -> list[S]:
        """Return the sides that can run it: those without a reason against it in its strategy."""
        return [side for side in sides if not self.case.distribution.side_obstacle(side.name)]

    @abstractmethod
    def compared(self, sides: Sequence[Worker], plan: Plan, report: Report) -> CaseResult:
        """Record both sides as planned, compare them, and note their environment in the report.

        A failure is a result as well, with the verdict `error`. Raises MissingError.
        """

    @abstractmethod
    def record(self, side: Worker, folder: Path) -> Answer:
        """Record all runs of one side into `folder`. Raises UsageError and BackendError."""

    @abstractmethod
    def record_candidate(self, side: Worker, folder: Path, golden: Path) -> Answer:
        """Record what is compared with the side's earlier trace below `golden`.

        It needs no witness, which only the reference (the golden trace) must have. Raises UsageError, BackendError.
        """

    def recorded(self, side: Worker, folder: Path, golden: Path | None = None) -> Answer:
        """Record one side, with `golden` as its candidate, and return the answer, also where that fails."""
        try:
            return self.record_candidate(side, folder, golden) if golden else self.record(side, folder)
        except BackendError as error:
            return Answer(status="error", message=str(error))
        except UsageError as error:
            return Answer(status="usage", message=str(error))


def note_environment(traces: Sequence[Trace], report: Report) -> None:
    """Note in the report what the traces of one or both sides were recorded with, unless a case before has told."""
    names = side_names(*traces) if len(traces) > 1 else [traces[0].backend]
    for name, trace in zip(names, traces, strict=True):
        report.environment.setdefault(name, {**trace.manifest.versions, **trace.manifest.environment})
