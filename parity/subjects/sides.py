"""The sides of a pair's file, as subjects: each is recorded once, and every one is judged against the first.

Sides of one framework share the names and the initial values of one survey, so that nothing has to be mapped. Where
both frameworks take part, the weights of Keras's sides are mapped to PyTorch's as in any pair, and PyTorch's side is
the reference of the rule, whichever is named first.

Versions of a package are sides as well (parity.bisect), each of which runs one framework's half of the pair.
"""

import contextlib
import shlex
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from parity.config.devices import Kind
from parity.config.pair import UNKNOWN
from parity.config.sides import KINDS, Side
from parity.core.errors import BackendError, MissingError, UsageError
from parity.pairs.compare import compared
from parity.pairs.file import PairFile
from parity.pairs.judge import judged
from parity.pairs.prepare import prepare, survey_torch
from parity.pairs.recording import prepare_alone
from parity.pairs.scripts import completed
from parity.results import CaseResult, Cause, Report, error_kind, failed
from parity.runtime import resources, survey
from parity.runtime.environment import Releases
from parity.runtime.job import RUNS, Answer, Job
from parity.runtime.runner import Runner, Worker, begun, ended
from parity.subjects import Plan, Subject, in_order, note_environment
from parity.trace import keys
from parity.trace.manifest import Trace
from parity.trace.mapping import PairContext

WorkerOf = Callable[[Side], Worker]  # returns what runs the jobs of a side
PREPARING = "(preparing)"  # no side has this name
SWITCH = "sides.switch"
NOTHING_ELSE = "they differ in nothing but this package's version: one model, weights, data and masks"


class SidesOfPair:
    """The recordings of a file's sides below `folder`, which the comparisons with the first side share."""

    def __init__(self, file: PairFile, worker_of: WorkerOf, folder: Path) -> None:
        self.file, self.folder = file, folder
        self._worker_of = worker_of
        self._lock = threading.Lock()
        self._begun: dict[str, Future[Any]] = {}
        self._references = {self._with_first(candidate)[0].name for candidate in file.sides[1:]}

    def case(self, candidate: Side) -> str:
        """Return the name of the case in which a side is judged."""
        first, second = self._with_first(candidate)
        return f"{self.file.case.name}@{first.name},{second.name}"

    def compared(self, candidate: Side) -> CaseResult:
        """Record the first side and another one, if that is not done yet, and compare them.

        A side that fails gives a result with the verdict `error`.
        """
        sides = self._with_first(candidate)
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

    def _with_first(self, candidate: Side) -> tuple[Side, Side]:
        """Return a side and the first one, the reference first."""
        return in_order(self.file.sides[0], candidate, attrgetter("framework"))

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

    def record(self, side: Worker, folder: Path, golden: Path | None, summarises: bool) -> Answer:
        """Refuse to record one framework's half, which a side of a file is not. Raises UsageError."""
        raise UsageError(f"{self.case.name}: sides are recorded by parity.compare --sides, with --keep=DIR")


class Versions:
    """The version `good`, which is recorded once, and those that are compared with it.

    `file` is the pair, with a side of the framework that is run; `port` the pair in both frameworks, None if it has one
    half. `scratch` is the folder for traces; a backend of `kind` is given up after `patience` seconds.
    """

    def __init__(
        self,
        file: PairFile,
        port: PairFile | None,
        releases: Releases,
        good: str,
        scratch: Path,
        kind: Kind,
        patience: float,
    ) -> None:
        self._framework, self._port, self._releases, self._good = file.sides[0].framework, port, releases, good
        self._scratch, self._kind, self._patience = scratch, kind, patience
        self._environments: dict[str, dict[str, Any]] = {}
        first = self._side(good)
        self._sides = SidesOfPair(file._replace(sides=(first, first)), lambda side: self._runner.worker(side), scratch)

    def compared(self, version: str) -> CaseResult:
        """Record a version, and compare it with the first; one that cannot be installed has the verdict `error`."""
        try:
            side = self._side(version)
        except UsageError as error:
            return failed(self._sides.file.case.name, error)
        with self._running(self._framework) as self._runner:
            result = self._sides.compared(side)
        noted = Report()
        if result.verdict != "error":
            note_environment([Trace(self._scratch / name) for name in self._names(version)], noted)
        self._environments[version] = noted.environment
        shutil.rmtree(self._scratch / side.name, ignore_errors=True)  # the next version may need the disk space
        return result

    def explain(self, result: CaseResult, version: str, report: Report) -> None:
        """Complete the comparison of a version with what changed in it, and note the environments in the report."""
        report.environment = self._environments.get(version, {})
        values = dict(zip(("reference", "candidate"), self._names(version), strict=True), evidence=NOTHING_ELSE)
        switched = [replace(each, **values) for each in result.causes if each.id == SWITCH]
        named = [each for each in result.causes if each.id != SWITCH]
        if switched and not named:
            with contextlib.suppress(UsageError, BackendError, MissingError):  # the other half cannot be run
                named = list(self._changed(version))
        result.causes = [*named, *switched]

    def _changed(self, version: str) -> Iterator[Cause]:
        """Yield what the two halves of the pair differ in with one version, and not, or otherwise, with the other.

        What a layer computes is known of PyTorch's, with which Keras's are compared (parity.diagnose). Raises
        UsageError, BackendError and MissingError.
        """
        named: list[dict[tuple[str, str], Cause]] = []
        if not self._port:
            return
        for each in (self._good, version):
            with self._running("torch", "keras") as runner:
                own = runner.worker(self._side(each))
                workers = [own if side.name == self._framework else side for side in runner.sides]
                result = compared(self._port, workers, self._scratch / "halves" / each, varied=False)
            named.append({(cause.id, cause.where): cause for cause in result.causes if cause.id != UNKNOWN})
        for key, cause in {key: cause for causes in named for key, cause in causes.items()}.items():
            usual = getattr(cause, "keras" if self._framework == "torch" else "torch")  # what the halves agree on
            before, after = (getattr(causes[key], self._framework) if key in causes else usual for causes in named)
            if before != after or not all(key in causes for causes in named):
                yield replace(cause, torch=UNSET, keras=UNSET, reference=before, candidate=after)

    def _names(self, version: str) -> list[str]:
        return [f"{self._releases.package}-{each}" for each in (self._good, version)]

    def _side(self, version: str) -> Side:
        """Return the side that runs a version, which is then installed. Raises UsageError."""
        env = self._releases.variables(version)
        return KINDS[self._framework](name=self._names(version)[-1], python=sys.executable, env=env)

    def _running(self, *frameworks: str) -> Runner:
        folder = Path(tempfile.mkdtemp(dir=self._scratch, prefix="running-"))
        return Runner.of(dict.fromkeys(frameworks, ""), folder, self._kind, self._patience)
