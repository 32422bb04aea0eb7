"""What is run and compared, a built-in case or a pair of a user's models: the commands need not ask which it is.

Two folders of recorded traces are compared as well. A training that several cases need, as their own or as their
baseline (the same training on a single device), is recorded only once.
"""

import shutil
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import TypeVar

import msgspec

from parity.config import cases
from parity.config.devices import baseline, why_no_baseline
from parity.config.schema import Case
from parity.core.errors import BackendError, TraceError, UsageError
from parity.pairs.judge import judged
from parity.results import CaseResult, Report, failed
from parity.runtime.job import RUNS, Answer, Job
from parity.runtime.runner import Worker, begun, ended
from parity.trace import keys
from parity.trace.manifest import Trace, find
from parity.verdict.distributed import across
from parity.verdict.traces import side_names

S = TypeVar("S", bound=Worker)
Half = TypeVar("Half")


class Task:
    """A training, with a planted fault if there is one, that each side records once for the cases `users`."""

    def __init__(self, case: Case, folder: Path, kept: bool, fault: str = "") -> None:
        self.case, self.folder, self.kept, self.fault = case, folder, kept, fault
        self.users: set[str] = set()
        self._lock = threading.Lock()
        self._answers: dict[str, Future[Answer]] = {}

    def begin(self, sides: Sequence[Worker]) -> None:
        """Begin to record on the given sides, except on one where a case that needs the same training has done so."""
        with self._lock:
            for side in sides:
                if side.name not in self._answers:
                    folder = str((self.folder / side.name).absolute())
                    job = Job(case=self.case, runs=RUNS[side.name], folder=folder, fault=self.fault)
                    self._answers[side.name] = begun(partial(side.do, job))

    def answer(self, side: str) -> Answer:
        """Wait for the recording of one side, which has begun, and return its answer. Raises MissingError."""
        return ended(self._answers[side])

    def release(self, user: str) -> None:
        """Note that a case no longer needs this trace; delete the trace after its last user, unless it is kept."""
        with self._lock:
            self.users.discard(user)
            if not self.users and not self.kept:
                shutil.rmtree(self.folder, ignore_errors=True)


class Plan:
    """The traces of a comparison's cases; `own` and `baselines` hold each case's tasks by its name.

    Not every case has a baseline (see `why_no_baseline`). Traces are written below `folder`, and stay there if `kept`.
    """

    def __init__(self, cases: Sequence[Case], scratch: Path, keep: Path | None) -> None:
        self.folder, self.kept = keep or scratch, keep is not None
        self.own = {case.name: Task(case, self.folder / case.name, self.kept) for case in cases}
        trainings = {_training(case): task for case, task in zip(cases, self.own.values(), strict=True)}
        self.baselines: dict[str, Task] = {}
        for number, case in enumerate(cases):
            if not why_no_baseline(case):
                single = baseline(case)
                task = Task(single, scratch / "baselines" / str(number), False)
                self.baselines[case.name] = trainings.setdefault(_training(single), task)
        for name in self.own:
            for task in self.needs(name):
                task.users.add(name)

    def needs(self, name: str) -> list[Task]:
        """Return the tasks that a case needs: its own, and its baseline's, which begins first."""
        return [task for task in (self.own[name], self.baselines.get(name)) if task]

    def begin(self, case: Case, sides: Sequence[Worker]) -> tuple[Task, Task | None]:
        """Begin to record what a case needs, and return its own task and that of its baseline."""
        for task in reversed(self.needs(case.name)):
            task.begin(sides)
        return self.own[case.name], self.baselines.get(case.name)

    def release(self, case: Case) -> None:
        """Note that a case no longer needs its traces."""
        for task in self.needs(case.name):
            task.release(case.name)


def _training(case: Case) -> bytes:
    """Return a key that two cases share if they differ in name only."""
    return msgspec.json.encode(msgspec.structs.replace(case, name=""))


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
    if reference.manifest.side and candidate.manifest.side and reference.case != candidate.case:
        raise UsageError(
            f"{reference.folder} and {candidate.folder} begin with other weights, or train on other batches; record "
            "the second script with --like=DIR, which names the first one's folder"
        )
    if reference.backend == candidate.backend and reference.case != candidate.case:
        return across(reference, candidate)
    return judged(reference, candidate)


def in_order(first: Half, second: Half, framework: Callable[[Half], str] = attrgetter("backend")) -> tuple[Half, Half]:
    """Return two traces, or what else has a framework, the reference first, which is PyTorch's of two frameworks."""
    return (second, first) if (framework(first), framework(second)) == ("keras", "torch") else (first, second)


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
