"""What the commands ask of a built-in case and of a pair alike; two folders of recorded traces are compared as well."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from parity.config import cases
from parity.config.schema import Case
from parity.core.errors import BackendError, TraceError, UsageError
from parity.pairs.judge import judged
from parity.results import CaseResult, Report, failed
from parity.runtime.job import Answer
from parity.runtime.plan import Plan
from parity.runtime.runner import Worker
from parity.trace import keys
from parity.trace.manifest import Trace, find
from parity.verdict.distributed import across
from parity.verdict.traces import side_names

S = TypeVar("S", bound=Worker)


class Subject(ABC):
    """A built-in case or a pair."""

    case: Case  # its settings
    flags: Sequence[str]  # what chooses it on a command line
    again: str  # with what changes how it is trained, quoted for a shell
    keras_needs_torch: bool  # whether Keras's recording reads torch's

    def able(self, sides: Sequence[S]) -> list[S]:
        """Return the sides that can run it: those without a reason against it in its strategy."""
        return [side for side in sides if not self.case.distribution.side_obstacle(side.name)]

    @abstractmethod
    def compared(self, sides: Sequence[Worker], plan: Plan, report: Report) -> CaseResult:
        """Record both sides as planned, compare them, and note their environment in the report.

        A failure is a result as well, with the verdict `error`. Raises MissingError.
        """

    @abstractmethod
    def record(self, side: Worker, folder: Path, golden: Path | None, summarises: bool) -> Answer:
        """Record all runs of one side into `folder`; with `summarises`, large tensors as summaries.

        With `golden`, record what is compared with the side's earlier trace below that folder. It needs no witness,
        which only the reference (the golden trace) must have. Raises UsageError and BackendError.
        """

    def recorded(self, side: Worker, folder: Path, golden: Path | None = None, summarises: bool = False) -> Answer:
        """Record one side like `record`, and return the answer, also where that fails."""
        try:
            return self.record(side, folder, golden, summarises)
        except BackendError as error:
            return Answer(status="error", message=str(error))
        except UsageError as error:
            return Answer(status="usage", message=str(error))


def note_environment(traces: Sequence[Trace], report: Report) -> None:
    """Note in the report what the traces of one or both sides were recorded with, unless a case before has told."""
    names = side_names(*traces) if len(traces) > 1 else [traces[0].backend]
    for name, trace in zip(names, traces, strict=True):
        report.environment.setdefault(name, {**trace.manifest.versions, **trace.manifest.environment})


def compared_folders(first: Path, second: Path, report: Report) -> Iterator[CaseResult]:
    """Compare the traces in two folders case by case. Raises UsageError if a case is in one folder only."""
    left, right = _by_case(first), _by_case(second)
    if len(left) == len(right) == 1:  # pair them even if their cases differ: the comparison then says in what
        right = dict(zip(left, right.values(), strict=True))
    if missing := sorted(left.keys() ^ right.keys()):
        raise UsageError(f"only one of {first} and {second} holds a trace of {', '.join(missing)}")
    order = {name: number for number, name in enumerate(cases.names())}
    for name, trace in sorted(left.items(), key=lambda item: order.get(item[0], len(order))):
        try:
            yield _compare(trace, right[name], report)
        except UsageError as error:
            if len(left) == 1:
                raise
            yield failed(name, error)


def _by_case(folder: Path) -> dict[str, Trace]:
    traces: dict[str, Trace] = {}
    for path in find(folder):
        trace = Trace(path)
        if trace.case.name in traces:
            raise UsageError(
                f"{folder}: holds two traces of {trace.case.name} ({traces[trace.case.name].folder}, {path}); "
                "name a folder that holds one trace of each case"
            )
        traces[trace.case.name] = trace
    return traces


def _compare(first: Trace, second: Trace, report: Report) -> CaseResult:
    """Compare two traces; PyTorch is the reference, whichever is named first. Raises TraceError."""
    reference, candidate = in_order(first, second)
    for trace in (reference, candidate):
        check_steps(trace)
    note_environment([reference, candidate], report)
    if reference.backend == candidate.backend and reference.case != candidate.case:
        return across(reference, candidate)
    return judged(reference, candidate)


def in_order(first: Trace, second: Trace) -> tuple[Trace, Trace]:
    """Return two traces, the reference first, which is PyTorch's of two frameworks."""
    return (second, first) if (first.backend, second.backend) == ("keras", "torch") else (first, second)


def check_steps(trace: Trace) -> None:
    """Raise TraceError if a replica lacks a step of a run, the state before the first step, or the evaluation.

    A step that both traces lack would silently not be compared. A pair without [train] has a single step and no
    evaluation.
    """
    facts, case = trace.manifest, trace.case
    last = case.steps if case.model.trains else 0
    steps = [step for step in range(last + 1) if step in (0, last - 1, last) or step % case.every == 0]
    demanded, listed = [keys.INITIAL, *map(keys.step_file, steps)], facts.files.keys() | facts.same.keys()
    if not facts.layout.parameters:  # a model without parameters has no state before the first step
        demanded.remove(keys.INITIAL)
    for run in (*keys.RUNS[:2], *keys.RUNS[2:] * (keys.RUNS[2] in facts.runs)):
        for replica, ranks in enumerate(facts.replicas):
            held = {stem for stem in demanded if listed.intersection(f"{run}/rank-{rank}/{stem}" for rank in ranks)}
            if replica:  # nn.DataParallel creates the other replicas in every step, so they have no initial state
                held.add(keys.INITIAL)
            if lost := [stem for stem in demanded if stem not in held]:
                raise TraceError(
                    f"{trace.folder / keys.MANIFEST}: is truncated: its {run} run has no {lost[0]}, which "
                    f"{case.name} with steps={case.steps} must have; record the trace again"
                )
