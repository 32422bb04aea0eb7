"""A built-in case, and a pair of a user's models, as subjects: both sides are recorded, and then compared."""

import shlex
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from parity.config.devices import why_no_baseline
from parity.config.schema import Case
from parity.core.errors import TraceError, UsageError
from parity.diagnose.diagnosis import examined
from parity.pairs.compare import compared
from parity.pairs.file import PairFile
from parity.pairs.prepare import place
from parity.pairs.recording import as_unrecorded, recorded, recorded_again, recorded_script
from parity.results import Against, CaseResult, LayoutCheck, Report, error_kind, failed, worst
from parity.runtime import resources
from parity.runtime.job import RUNS, Answer, Job
from parity.runtime.runner import Worker
from parity.subjects import Plan, Subject, Task, note_environment
from parity.trace import keys
from parity.trace.manifest import Trace
from parity.verdict.distributed import against_single

FollowUp = Callable[[PairFile, CaseResult, Sequence[Worker], Path], None]


class BuiltIn(Subject):
    """A built-in case: both sides know its weights and its activations by the same names.

    `changes` are the flags that change how it is trained, quoted for a shell.
    """

    keras_needs_torch = False

    def __init__(self, case: Case, changes: Sequence[str] = ()) -> None:
        self.case = case
        self.flags = [f"--case={case.name}"]
        self.again = " ".join([*map(shlex.quote, self.flags), *changes])

    def compared(self, sides: Sequence[Worker], plan: Plan, report: Report) -> CaseResult:
        """Record and compare the case, and compare each side's distributed training with that on a single device."""
        able = self.able(sides)
        own, single = plan.begin(self.case, able)
        answers = {side.name: own.answer(side.name) for side in able}
        alone = {side.name: single.answer(side.name) for side in able} if single else {}
        try:
            result = self._failure(answers) or self._judged(own, single, alone, report)
        except UsageError as error:
            result = failed(self.case.name, error)
        result.seconds = {name: round(answer.seconds, 3) for name, answer in answers.items()}
        plan.release(self.case)
        return result

    def _failure(self, answers: Mapping[str, Answer]) -> CaseResult | None:
        """Return the result where a side could not be recorded, with the command that records it again."""
        messages = [
            f"{answer.message}\n    again: python -m parity.record --backend={name} {self.again} --out=traces"
            for name, answer in answers.items()
            if answer.status != "done"
        ]
        if not messages:
            return None
        kind = error_kind(answers.values())
        return CaseResult(case=self.case.name, verdict="error", error=kind, reason="\n".join(messages))

    def _judged(self, own: Task, single: Task | None, alone: Mapping[str, Answer], report: Report) -> CaseResult:
        """Return the verdict on what both sides have recorded. Raises TraceError."""
        reference = Trace(own.folder / "torch")
        if obstacle := self.case.distribution.side_obstacle("keras"):
            note_environment([reference], report)
            return self._on_torch_alone(reference, self._against(reference, single, alone), obstacle)
        candidate = Trace(own.folder / "keras")
        note_environment([reference, candidate], report)
        result = examined(reference, candidate).result
        result.case = self.case.name  # a trace that several cases share bears the name of only one of them
        if self.case.distribution.is_distributed:
            result.against_single = {
                trace.backend: self._against(trace, single, alone) for trace in (reference, candidate)
            }
        result.verdict = worst([result.verdict, *(against.verdict for against in result.against_single.values())])
        return result

    def _on_torch_alone(self, trace: Trace, against: Against, obstacle: str) -> CaseResult:
        """Return the result of a case that has no counterpart in Keras: torch against its own single device."""
        layout = trace.manifest.layout
        return CaseResult(
            case=self.case.name,
            verdict="skipped" if against.skipped else against.verdict,
            reason=against.skipped or against.reason,
            checks={"layout": LayoutCheck(verdict="skipped", sides={trace.backend: layout})},
            against_single={trace.backend: against, "keras": Against(skipped=obstacle)},
            devices={trace.backend: layout.devices},
            not_compared=[f"keras is skipped, torch is compared with its own single device alone: {obstacle}"],
        )

    def _against(self, trace: Trace, single: Task | None, alone: Mapping[str, Answer]) -> Against:
        """Compare one side's distributed training with its training on a single device, whose answers are `alone`."""
        if single is None:
            return Against(skipped=why_no_baseline(self.case))
        if alone[trace.backend].status != "done":
            return Against(skipped=f"the training on a single device failed: {alone[trace.backend].message}")
        witness = Trace(single.folder / "torch") if alone["torch"].status == "done" else None
        return against_single(Trace(single.folder / trace.backend), trace, witness)

    def record(self, side: Worker, folder: Path, golden: Path | None, summarises: bool) -> Answer:
        """Record one side. Raises UsageError where there is no room for all of its runs."""
        if not golden:
            resources.check(self.case, resources.of_case(self.case), folder, keys.RUNS, summarises)
        runs, own = list(RUNS["keras"] if golden else keys.RUNS), str((folder / side.name).absolute())
        return side.do(Job(case=self.case, runs=runs, folder=own, summarises=summarises))


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

    def record(self, side: Worker, folder: Path, golden: Path | None, summarises: bool) -> Answer:
        """Record one side, and its survey; with `golden`, from the weights in the golden survey.

        Raises TraceError if that survey is missing.
        """
        if not golden:
            return recorded(self.file, side, folder, summarises=summarises)
        survey = place(golden / self.case.name, "torch")
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


class RecordedScript(UserPair):
    """A script that is recorded alone, from the weights and on the batches of its recording in the folder `like`."""

    def __init__(self, file: PairFile, like: Path | None = None) -> None:
        super().__init__(file)
        self._like = like

    def record(self, side: Worker, folder: Path, golden: Path | None, summarises: bool) -> Answer:
        """Record the script, and say whether it trains as it does unrecorded."""
        answer = recorded_script(self.file, side, folder, self._like)
        if answer.status == "done" and not self._like and (said := as_unrecorded(folder, side.name)):
            print(said, flush=True)
        return answer
