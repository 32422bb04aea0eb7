"""Drive an examination: train a program, with each of its steps in a context manager that the backend provides.

The first steps are observed, some more are timed, and the last is profiled on request; the backend decides what that
means. A step begins where the one before it ended, so that libraries which fetch batches ahead do not matter.

In the folder of the examination each rank writes files, from which the parent reads while it runs. RANK.evidence: what
it observed, written at its end. RANK.calls: a line for each call that waits for other ranks, written before the call.
RANK.stack: its Python stack, if the parent asked for it. RANK.built: written once the program is built; contains the
folders of the user's, this project's and installed code (`ownership.Homes`). RANK.step-N: it has ended step N. Each
file is a sign of progress, after which the parent's patience starts anew.
"""

import faulthandler
import json
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import msgspec

from parity.core import ownership
from parity.core.errors import BackendError, UsageError
from parity.core.program import load
from parity.doctor.evidence import Collective, Evidence, Failure, Place, Waiting
from parity.runtime.drive import Program
from parity.runtime.job import DoctorJob

MODELS = {"torch": "torch.nn.Module", "keras": "keras.Model"}
OBSERVED, WARM, TIMED = 2, 1, 5
POLL = 0.005  # seconds between two looks for a file
Written = TypeVar("Written", bound=msgspec.Struct)
Step = Callable[[Any, dict[str, Any]], object]  # makes one training step of a model with a batch
Batches = Callable[[Any], Iterator[dict[str, Any]]]
MakeContext = Callable[[Any], AbstractContextManager[Any]]  # returns the context that a step with a batch runs in
LineOf = Callable[[TracebackType | None], str]  # returns the line of the user's code that an exception came from


class Files:
    def __init__(self, folder: Path, rank: int) -> None:
        self.folder, self.rank = folder, rank

    def answer_where(self) -> None:
        """From now on, dump the Python stack when the parent sends SIGUSR1, even while waiting in a library."""
        # The file is opened now, because a signal handler cannot open one.
        self._open = self._file("stack").open("w")
        faulthandler.register(signal.SIGUSR1, self._open, all_threads=False)

    def built(self) -> None:
        """Note that the program is built, and write where the code of its process lives."""
        self._file("built").write_bytes(_encoded(ownership.here()))

    def homes(self) -> ownership.Homes | None:
        """Return where the code of the rank's process lives, or None if its program is not built yet."""
        return next(_decoded(self._file("built"), ownership.Homes), None)

    def ended(self, step: int | str) -> None:
        """Note that this rank has ended a step, or all steps ("all")."""
        self._file(f"step-{step}").touch()

    def meet(self, ranks: int, step: int) -> None:
        """Wait until all ranks have ended a step, by files: a collective could end up in the program's own queue."""
        self.ended(step)
        for other in (Files(self.folder, rank) for rank in range(ranks)):
            while not (other._file(f"step-{step}").exists() or other._file("step-all").exists()):
                time.sleep(POLL)

    def write(self, evidence: Evidence) -> None:
        """Write the evidence atomically, in place of what was written before."""
        unfinished = self._file("unfinished")
        unfinished.write_bytes(_encoded(evidence))
        unfinished.replace(self._file("evidence"))

    def read(self) -> Evidence | None:
        """Return what the rank observed, or None if it did not come to an end."""
        return next(_decoded(self._file("evidence"), Evidence), None)

    def note(self, call: Collective) -> None:
        """Note a call that is about to be made."""
        with self._file("calls").open("ab") as file:
            file.write(_encoded(call) + b"\n")

    def noted(self) -> list[Collective]:
        """Return the calls that were made or begun."""
        return list(_decoded(self._file("calls"), Collective))

    def steps(self) -> int:
        """Return how many steps the rank has ended."""
        return len(list(self.folder.glob(f"{self.rank}.step-*")))

    def where(self) -> list[str]:
        """Return the stack that the rank dumped, as lines of Python, the innermost call first."""
        return [line.decode().strip() for line in _lines(self._file("stack")) if line.startswith(b"  File")]

    def _file(self, kind: str) -> Path:
        return self.folder / f"{self.rank}.{kind}"


def _encoded(value: msgspec.Struct) -> bytes:
    """Return a value as one line of JSON, in Python's dialect."""
    # msgspec's own JSON has null for NaN and infinity, and fails for file names that are not UTF-8.
    return json.dumps(msgspec.to_builtins(value)).encode()


def _lines(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines() if path.exists() else []


def _decoded(path: Path, kind: type[Written]) -> Iterator[Written]:
    return (msgspec.convert(json.loads(line), kind) for line in _lines(path))


def waiting(ranks: list[Files]) -> list[Waiting]:
    """Return where each rank was; a rank that is further than another has ended the step in which the other is."""
    first = min(rank.steps() for rank in ranks)
    return [Waiting(rank=r.rank, ended=r.steps() > first, stack=r.where(), homes=r.homes()) for r in ranks]


def steps(job: DoctorJob) -> int:
    return OBSERVED + WARM + TIMED + bool(job.profile)


def schedule(
    job: DoctorJob, observed: MakeContext, plain: MakeContext, timed: MakeContext, profiled: MakeContext
) -> list[MakeContext]:
    """Return what makes the context of each step: observed, plain, timed or profiled."""
    later = [plain] * WARM + ([timed] * TIMED + [profiled] if job.timed else [plain] * (TIMED + 1))
    return ([observed] * OBSERVED + later)[: steps(job)]


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

    `contexts`: what makes the context manager of each step. If that swallows an exception, the training ends. `ranks`:
    the number of ranks that keep in step with each other.
    """

    def __init__(self, program: Program, contexts: list[MakeContext], files: Files, ranks: int) -> None:
        self.program, self.contexts, self.files, self.ranks = program, contexts, files, ranks
        self._batches: list[Any] = []
        self._number = 0
        self._inside: AbstractContextManager[Any]

    def run(self) -> None:
        """Run all steps. Raises what a step raised, unless the step's context swallows it."""
        self._begin()
        try:
            self.program.train(map(self._batch, range(len(self.contexts))), self._on_step)
        except Exception as error:
            is_over = self._number == len(self.contexts)
            if is_over or not self._inside.__exit__(type(error), error, error.__traceback__):
                raise
        finally:
            self.files.ended("all")

    def _begin(self) -> None:
        self._inside = self.contexts[self._number](self._batch(self._number))
        self._inside.__enter__()

    def _on_step(self) -> None:
        self._inside.__exit__(None, None, None)
        self.files.meet(self.ranks, self._number)
        self._number += 1
        if self._number < len(self.contexts):
            self._begin()

    def _batch(self, number: int) -> Any:
        while len(self._batches) <= number:
            self._batches.append(next(self.program.batches))
        return self._batches[number]
