"""The runner schedules jobs on the processes of both sides: threads ask a side to run a job, and wait for its turn.

Each subject (a built-in case, a pair) is worked through in a thread of its own, several at a time, so its code can be
read from top to bottom: record both sides, compare, run again. How many processes work at the same time is decided
here: as many as there are processors. A side starts with one process; another is started for it where a processor is
free and several of its jobs wait, as Keras's do when torch has finished, or where the first has run another pair.
"""

import contextlib
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from functools import partial
from pathlib import Path
from typing import NamedTuple, Self, TypeVar

from parity.config.devices import Kind
from parity.config.sides import Side as PairSide
from parity.core.errors import BackendError, MissingError
from parity.core.groups import by_key
from parity.runtime.backend import PATIENCE, Backend
from parity.runtime.child import ENDING
from parity.runtime.job import Answer, Work
from parity.runtime.resources import memory, processors

T = TypeVar("T")
WAKE = 0.5  # seconds; a wait returns this often so that Python can handle signals


def begun(function: Callable[[], T]) -> "Future[T]":
    """Call a function in a daemon thread, and return the future of its result or exception.

    A ThreadPoolExecutor would not do: the interpreter joins its threads at exit, after Ctrl-C also for a hanging child.
    """
    future: Future[T] = Future()

    def call() -> None:
        try:
            future.set_result(function())
        except BaseException as error:  # raised again by `ended`
            future.set_exception(error)

    threading.Thread(target=call, daemon=True).start()
    return future


def ended(future: "Future[T]") -> T:
    """Wait for a future, and return its result or raise its exception.

    The wait is done in short pieces: a signal that arrives just before an unlimited wait does not interrupt it, and
    would be handled only when the wait is over.
    """
    while not wait([future], timeout=WAKE).done:
        pass
    return future.result()


S = TypeVar("S")
# Another process of a side is started where more than this many of its jobs wait: each takes memory of its own, and its
# first calls take longer than later ones.
QUEUE = 3
MEMORY = 3 << 30  # bytes of memory for each process of a side


def in_order(subjects: Sequence[S], work: Callable[[S], T], ahead: int) -> Iterator[T]:
    """Call `work` for subjects in threads, `ahead` at a time, and yield the results in order. Raises what it raises."""
    futures = deque(begun(partial(work, subject)) for subject in subjects[:ahead])
    for number in range(len(subjects)):
        result = ended(futures.popleft())
        futures.extend(begun(partial(work, subject)) for subject in subjects[number + ahead : number + ahead + 1])
        yield result


class Side:
    """The processes of one side, for callers in any thread."""

    def __init__(self, first: Backend, turns: "_Turns", most: int) -> None:
        self.name, self.folder = first.name, first.folder
        self.backends, self.idle = [first], [first]
        self._turns, self._most = turns, most

    def do(self, job: Work) -> Answer:
        """Run a job when its turn has come, and return the answer. Raises MissingError: all others would fail alike."""
        try:
            with self._turns.turn(self, job) as backend:
                return backend.do(job)
        except MissingError:
            raise
        except BackendError as error:
            return Answer(status="error", message=str(error))
        except Exception as error:  # of this job alone: the others are still run
            return Answer(status="error", message=f"{self.name}: {type(error).__name__}: {error}")

    @property
    def may_grow(self) -> bool:
        """Return whether another process may start."""
        return len(self.backends) < self._most

    def take(self, job: Work) -> Backend:
        """Return a process, busy from now on: an idle one that serves the job as it is, or a further one, or any."""
        if not self.serves(job) and self.may_grow:
            self.backends.append(self.backends[0].another(str(len(self.backends) + 1)))
            return self.backends[-1]
        self.idle.sort(key=lambda backend: not backend.serves(job))
        return self.idle.pop(0)

    def serves(self, job: Work) -> bool:
        """Return whether an idle process serves a job as it is."""
        return any(backend.serves(job) for backend in self.idle)


Worker = Backend | Side  # what runs jobs of one side


def both(jobs: Mapping[Worker, Work], in_turn: bool = False) -> dict[str, Answer]:
    """Run a job on each side, at the same time or `in_turn`; return answers by side. Raises MissingError."""
    if in_turn:
        return {worker.name: worker.do(job) for worker, job in jobs.items()}
    answers = {worker.name: begun(partial(worker.do, job)) for worker, job in jobs.items()}
    return {name: ended(answer) for name, answer in answers.items()}


class Runner(contextlib.AbstractContextManager["Runner"]):
    """Both sides' processes, of which as many work at the same time as there are processors.

    `backends` are the first process of each side. Closing the runner ends all processes; jobs that wait are not run.
    """

    def __init__(self, backends: Sequence[Backend]) -> None:
        self._processors = processors()
        self.at_once = max(self._processors, len(backends))
        self._turns = _Turns(self.at_once)
        self.sides = [self._side(backend) for backend in backends]
        self._further: dict[str, Side] = {}  # by the switches of the first side of a pair's file that needs it
        self._adding = threading.Lock()

    @classmethod
    def of(cls, pythons: Mapping[str, str], folder: Path, kind: Kind = "cpu", patience: float = PATIENCE) -> Self:
        """Return a runner of one process for each of these backends, whose interpreters `pythons` names ("": this)."""
        return cls([Backend(name, python, folder, kind, patience) for name, python in pythons.items()])

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """End all processes, and refuse the jobs that wait."""
        self._turns.close()
        for side in (*self.sides, *self._further.values()):
            for backend in list(side.backends):
                backend.close()

    def worker(self, side: PairSide) -> Worker:
        """Return what runs a side of a pair's file; one with its own interpreter or environment has own processes."""
        first = next(each for each in self.sides if each.name == side.framework)
        if not (side.python or side.env):
            return first
        key = repr((side.framework, side.python, sorted(side.env.items())))
        with self._adding:
            if key not in self._further:
                backend = first.backends[0].another(f"side-{len(self._further)}", side.python, side.env)
                self._further[key] = self._side(backend)
            return self._further[key]

    def _side(self, backend: Backend) -> Side:
        # One process on GPUs, whose memory a process takes for itself.
        most = 1 if backend.kind == "gpu" else max(min(self._processors, memory() // MEMORY), 1)
        return Side(backend, self._turns, most)

    def doing(self) -> dict[str, str]:
        """Return the names of the cases that each side is running."""
        names = by_key((side, job.case.name) for side, job in self._turns.running if job.case)
        return {side.name: ", ".join(names.get(side, ())) for side in self.sides}


class _Request(NamedTuple):
    """A job that waits for its turn, or that is being run."""

    side: Side
    job: Work


class _Turns:
    """Which of the waiting jobs may run: `most` at the same time, in the order in which they came."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._changed = threading.Condition()
        self._waiting: list[_Request] = []
        self.running: list[_Request] = []
        self._closed = False

    @contextlib.contextmanager
    def turn(self, side: Side, job: Work) -> Iterator[Backend]:
        """Wait until a job may run, and provide the process that runs it. Raises BackendError if the runner closes."""
        request = _Request(side, job)
        with self._changed:
            self._waiting.append(request)
            while not self._closed and not self._is_next(request):
                self._changed.wait(WAKE)  # in short pieces, so that the main thread can handle signals
            self._waiting = [each for each in self._waiting if each is not request]
            if self._closed:
                raise BackendError(f"{side.name}: {ENDING}")
            self.running.append(request)
            backend = side.take(job)
            self._changed.notify_all()  # there may be room for the next one as well
        try:
            yield backend
        finally:
            with self._changed:
                side.idle.insert(0, backend)
                self.running = [each for each in self.running if each is not request]
                self._changed.notify_all()

    def close(self) -> None:
        """Refuse the jobs that wait."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _is_next(self, request: _Request) -> bool:
        """Return whether a job may run now: it has waited for the longest of those for which a process is idle.

        Jobs of the pair that has last run there come first. Where no process is idle, another may be started for it.
        """
        if len(self.running) >= self._most:
            return False
        jobs = Counter(id(waiting.side) for waiting in self._waiting)
        able = [waiting for waiting in self._waiting if waiting.side.idle]
        crowded = (waiting for waiting in self._waiting if jobs[id(waiting.side)] > QUEUE)
        able = able or [waiting for waiting in crowded if waiting.side.may_grow]
        able.sort(key=lambda waiting: not waiting.side.serves(waiting.job))
        return bool(able) and able[0] is request
