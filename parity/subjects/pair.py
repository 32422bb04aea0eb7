"""A pair of a user's models, as a subject."""

import shlex
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from parity.core.errors import TraceError, UsageError
from parity.pairs.compare import compared
from parity.pairs.file import PairFile
from parity.pairs.prepare import place
from parity.pairs.recording import recorded, recorded_again
from parity.results import CaseResult, Report, failed
from parity.runtime.job import RUNS, Answer
from parity.runtime.plan import Plan
from parity.runtime.runner import Worker
from parity.subjects.subject import Subject, note_environment
from parity.trace.manifest import Trace

FollowUp = Callable[[PairFile, CaseResult, Sequence[Worker], Path], None]


class UserPair(Subject):
    """A pair. `varied`: whether to compare it also on variations of its inputs.

    `whole`: whether to record large tensors whole at once, also those of a large model. `follow_up` is called with the
    result of the comparison, both sides, and the folder of the traces.
    """

    keras_needs_torch = True

    def __init__(
        self, file: PairFile, varied: bool = True, follow_up: FollowUp | None = None, whole: bool = False
    ) -> None:
        self.file, self.case, self.flags = file, file.case, file.flags
        self.again = " ".join(map(shlex.quote, file.flags))
        self._varied, self._follow_up, self._whole = varied, follow_up, whole

    def compared(self, sides: Sequence[Worker], plan: Plan, report: Report) -> CaseResult:
        """Record and compare the pair."""
        folder = plan.folder / self.case.name
        try:
            result = compared(self.file, sides, folder, self._varied, self._whole or plan.kept)
        except UsageError as error:
            result = failed(self.case.name, error)
        if result.verdict != "error":
            note_environment([Trace(folder / side) for side in ("torch", "keras")], report)
            if self._follow_up:
                self._follow_up(self.file, result, sides, folder)
        if not plan.kept:
            shutil.rmtree(folder, ignore_errors=True)  # the next pair may need the disk space
        return result

    def record(self, side: Worker, folder: Path, summarises: bool = False) -> Answer:
        """Record all runs of one side, and its survey."""
        return recorded(self.file, side, folder, summarises=summarises)

    def record_candidate(self, side: Worker, folder: Path, golden: Path) -> Answer:
        """Record what is compared with the golden trace, from the weights in the golden survey.

        Raises TraceError if that survey is missing.
        """
        survey = Path(place(golden / self.case.name, "torch"))
        if not survey.is_dir():
            raise TraceError(
                f"{survey}: not found, and {side.name} starts from the weights in it; record torch's golden trace first"
            )
        own = folder / side.name
        if side.name == "torch":
            return recorded_again(self.file, side, golden / self.case.name, own, RUNS["keras"])
        # Keras expects torch's survey in the folder that it writes to: use a copy, so that the golden folder is
        # unchanged.
        with tempfile.TemporaryDirectory(dir=side.folder) as apart:
            shutil.copytree(survey, place(Path(apart), "torch"))
            answer = recorded(self.file, side, Path(apart))
            if answer.status == "done":
                shutil.move(Path(apart) / side.name, own)
            return answer
