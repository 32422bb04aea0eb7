"""The sides of a pair's file, as subjects: each is recorded once, and every one is judged against the first.

Sides of one framework share the names and the initial values of one survey, so that nothing has to be mapped. Where
both frameworks take part, the weights of Keras's sides are mapped to PyTorch's as in any pair, and PyTorch's side is
the reference of the rule, whichever is named first.
"""

import shlex
import shutil
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from parity.config.sides import Side
from parity.core.errors import BackendError, MissingError, UsageError
from parity.pairs.file import PairFile
from parity.pairs.judge import judged
from parity.pairs.prepare import prepare, prepare_alone, survey_torch
from parity.pairs.scripts import completed
from parity.results import CaseResult, Report, error_kind, failed
from parity.runtime import resources, survey
from parity.runtime.job import RUNS, Answer, Job
from parity.runtime.plan import Plan
from parity.runtime.runner import Worker, begun, ended
from parity.subjects.subject import Subject, note_environment
from parity.trace import keys
from parity.trace.manifest import Trace
from parity.trace.mapping import PairContext

WorkerOf = Callable[[Side], Worker]  # returns what runs the jobs of a side
PREPARING = "(preparing)"  # no side has this name


class SidesOfPair:
    """The recordings of a file's sides below `folder`, which the comparisons with the first side share."""

    def __init__(self, file: PairFile, worker_of: WorkerOf, folder: Path) -> None:
        self.file, self.folder = file, folder
        self._worker_of = worker_of
        self._lock = threading.Lock()
        self._begun: dict[str, Future[Any]] = {}
        first, *others = file.sides
        self._references = {self._in_order(first, other)[0].name for other in others}

    def case(self, candidate: Side) -> str:
        """Return the name of the case in which a side is judged."""
        first, second = self._in_order(self.file.sides[0], candidate)
        return f"{self.file.case.name}@{first.name},{second.name}"

    def compared(self, candidate: Side) -> CaseResult:
        """Record the first side and another one, if that is not done yet, and compare them.

        A side that fails gives a result with the verdict `error`.
        """
        sides = self._in_order(self.file.sides[0], candidate)
        try:
            ended(self._once(PREPARING, self._prepared))
            recordings = {side.name: self._once(side.name, partial(self._recorded, side)) for side in sides}
            answers: dict[str, Answer] = {name: ended(recording) for name, recording in recordings.items()}
            if failures := {name: answer for name, answer in answers.items() if answer.status != "done"}:
                reason = "\n".join(f"{name}: {answer.message}" for name, answer in failures.items())
                kind = error_kind(failures.values())
                result = CaseResult(case=self.case(candidate), verdict="error", error=kind, reason=reason)
            else:
                first, second = (Trace(self.folder / side.name) for side in sides)
                result = judged(first, second)
        except (UsageError, BackendError) as error:
            return failed(self.case(candidate), error)
        except MissingError as error:
            if not any(side.python for side in sides):
                raise
            return failed(self.case(candidate), BackendError(str(error)))  # of this side's interpreter alone
        result.seconds = {name: round(answer.seconds, 3) for name, answer in answers.items()}
        return result

    def _in_order(self, first: Side, second: Side) -> tuple[Side, Side]:
        """Return two sides, the reference first."""
        return (second, first) if (first.framework, second.framework) == ("keras", "torch") else (first, second)

    def _once(self, name: str, work: Callable[[], Any]) -> Future[Any]:
        """Return the future of what `work` returns, which is called for each name once."""
        with self._lock:
            if name not in self._begun:
                self._begun[name] = begun(work)
            return self._begun[name]

    def _prepared(self) -> PairContext:
        """Survey the models of the frameworks that take part; return the context of Keras's jobs, or else torch's."""
        plain = {side.framework: side for side in reversed(self.file.sides)}
        workers = {framework: self._worker_of(side) for framework, side in plain.items()}
        self.file = completed(self.file, list(workers.values()), self.folder)
        if len(workers) > 1:
            context = prepare(self.file, workers, self.folder).context
        elif "torch" in workers:
            context = survey_torch(self.file, workers["torch"], self.folder)
        else:
            context = prepare_alone(self.file, workers["keras"], self.folder)
        resources.check(self.file.case, resources.of_pair(survey.read(Path(context.survey))), self.folder)
        return context

    def _recorded(self, side: Side) -> Answer:
        context: PairContext = replace(ended(self._once(PREPARING, self._prepared)), side=side)
        if side.framework == "torch":
            context = replace(context, mapping=None, matching=None)
        runs = list(keys.RUNS) if side.name in self._references else RUNS["keras"]
        folder = str((self.folder / side.name).absolute())
        return self._worker_of(side).do(Job(case=self.file.case, runs=runs, folder=folder, pair=context))


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
