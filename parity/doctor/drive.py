"""Drive an examination: train a program, with each of its steps in a context manager that the backend provides.

The first steps are observed, some more are timed, and the last is profiled on request; the backend decides what that
means. A step begins where the one before it ended, so that libraries which fetch batches ahead do not matter.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import TracebackType
from typing import Any, NamedTuple

from parity.core.errors import BackendError, UsageError
from parity.core.program import load
from parity.doctor.evidence import Failure, Place
from parity.doctor.files import Files
from parity.runtime.drive import Program
from parity.runtime.job import DoctorJob

MODELS = {"torch": "torch.nn.Module", "keras": "keras.Model"}
OBSERVED, WARM, TIMED = 2, 1, 5
Step = Callable[[Any, dict[str, Any]], object]  # makes one training step of a model with a batch
Batches = Callable[[Any], Iterator[dict[str, Any]]]
Context = AbstractContextManager[Any]
LineOf = Callable[[TracebackType | None], str]  # returns the line of the user's code that an exception came from


class Contexts(NamedTuple):
    """What each kind of step runs in: functions that return its context, the first of them for a batch."""

    observed: Callable[[Any], Context]
    plain: Callable[[], Context]
    timed: Callable[[], Context]
    profiled: Callable[[], Context]

    def of(self, job: DoctorJob, number: int, batch: Any) -> Context:
        """Return the context of a step: observed, plain, timed or profiled."""
        if number < OBSERVED:
            return self.observed(batch)
        if number < OBSERVED + WARM or not job.timed:
            return self.plain()
        return self.timed() if number < OBSERVED + WARM + TIMED else self.profiled()


def steps(job: DoctorJob) -> int:
    return OBSERVED + WARM + TIMED + bool(job.profile)


def users_program(job: DoctorJob, side: str, kinds: tuple[type, ...], step: Step, batches: Batches) -> Program:
    """Return a program of the user's: what --torch or --keras builds, trained by --step.

    `job`: names the functions. `kinds`: the classes of which the model has to be one. `step`: the training step if the
    flags name none. `batches`: returns the batches of all steps for a model.
    Raises UsageError if the flags name no functions, or no model is built.
    """
    build = load(f"--{side}", job.build)
    step = load("--step", job.step, "model", "inputs") if job.step else step
    model = build()
    if not isinstance(model, kinds):
        raise UsageError(f"--{side}={job.build}: expected a {MODELS[side]}, received {type(model).__name__}")

    def train(given: Iterator[Any], on_step: Callable[[], None]) -> None:
        for inputs in given:
            step(model, inputs)
            on_step()

    return Program(model, batches(model), train)


@contextmanager
def building_errors(line_of: LineOf) -> Iterator[None]:
    """Turn what a program raises while it is built, but for UsageError, into a BackendError with the user's line."""
    try:
        yield
    except UsageError:
        raise
    except (Exception, SystemExit) as error:
        line = line_of(error.__traceback__)
        where = f", at {line}" if line else ""
        raise BackendError(f"the program cannot be built: {type(error).__name__}: {error}{where}") from error


def outcome(drive: "Drive", line_of: LineOf) -> Failure | None:
    """Run all steps; return the failure if the user's code raised in a step that was not observed, else None.

    Such a failure does not spoil what was observed before. Other exceptions are passed on.
    """
    try:
        drive.run()
    except Exception as error:
        if not (source := line_of(error.__traceback__)):
            raise
        kind, first = type(error).__name__, next((line for line in str(error).splitlines() if line.strip()), "")
        return Failure(exception=kind, message=first, operation="", tensors=[], place=Place(source=source))
    return None


class Drive:
    """Trains a program step by step.

    `context`: context(number, batch) returns the context manager that step `number` runs in. If it swallows an
    exception, the training ends. `ranks`: the number of ranks that keep in step with each other.
    """

    def __init__(
        self, program: Program, context: Callable[[int, Any], Context], files: Files, ranks: int, steps: int
    ) -> None:
        self.program, self.context, self.files = program, context, files
        self.ranks, self.steps = ranks, steps
        self._batches: list[Any] = []
        self._number = 0
        self._inside: Context

    def run(self) -> None:
        """Run all steps. Raises what a step raised, unless the step's context swallows it."""
        self._begin()
        try:
            self.program.train(map(self._batch, range(self.steps)), self._on_step)
        except Exception as error:
            if self._number == self.steps or not self._inside.__exit__(type(error), error, error.__traceback__):
                raise
        finally:
            self.files.ended("all")

    def _begin(self) -> None:
        self._inside = self.context(self._number, self._batch(self._number))
        self._inside.__enter__()

    def _on_step(self) -> None:
        self._inside.__exit__(None, None, None)
        self.files.meet(self.ranks, self._number)
        self._number += 1
        if self._number < self.steps:
            self._begin()

    def _batch(self, number: int) -> Any:
        while len(self._batches) <= number:
            self._batches.append(next(self.program.batches))
        return self._batches[number]
