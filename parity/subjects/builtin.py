"""A built-in case: both sides know its weights and its activations by the same names."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from parity.config.devices import why_no_baseline
from parity.config.schema import Case
from parity.core.errors import UsageError
from parity.diagnose.diagnosis import examined
from parity.results import Against, CaseResult, LayoutCheck, Report, error_kind, failed, worst
from parity.runtime import resources
from parity.runtime.job import RUNS, Answer, Job
from parity.runtime.plan import Plan, Task
from parity.runtime.runner import Worker
from parity.subjects.subject import Subject, note_environment
from parity.trace import keys
from parity.trace.manifest import Trace
from parity.verdict.distributed import against_single


class BuiltIn(Subject):
    """A built-in case. `changes` are the flags that change how it is trained, quoted for a shell."""

    keras_needs_torch = False

    def __init__(self, case: Case, changes: Sequence[str] = ()) -> None:
        self.case = case
        self.flags = [f"--case={case.name}"]
        self.again = " ".join([*map(shlex.quote, self.flags), *changes])

    def compared(self, sides: Sequence[Worker], plan: Plan, report: Report) -> CaseResult:
        """Record and compare the case, and compare each side's distributed training with that on a single device."""
        own, single = plan.begin(self.case, self.able(sides))
        answers, alone = own.answers(), single.answers() if single else {}
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

    def record(self, side: Worker, folder: Path, summarises: bool = False) -> Answer:
        """Record all runs of one side. Raises UsageError where there is no room for them."""
        resources.check(self.case, resources.of_case(self.case), folder, keys.RUNS, summarises)
        return side.do(self._job(side, folder, keys.RUNS, summarises))

    def record_candidate(self, side: Worker, folder: Path, golden: Path) -> Answer:
        """Record what is compared with the side's golden trace."""
        return side.do(self._job(side, folder, RUNS["keras"]))

    def _job(self, side: Worker, folder: Path, runs: Sequence[str], summarises: bool = False) -> Job:
        own = str((folder / side.name).absolute())
        return Job(case=self.case, runs=list(runs), folder=own, summarises=summarises)
