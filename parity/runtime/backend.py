"""The parent's side: one process per backend, fed one job at a time, ended whatever happens."""

import contextlib
import os
import queue
import select
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from parity.errors import BackendError
from parity.runtime.environment import environment
from parity.runtime.job import Answer, Job

PACKAGES = {"torch": "torch_impl", "keras": "keras_impl"}
PATIENCE = 900.0  # seconds without an answer after which a backend counts as hung
LAST_LINES = 8


class Result(NamedTuple):
    """A backend's answer to one of its jobs, by number."""

    backend: str
    job: int
    answer: Answer


class Backend:
    """A process that answers jobs; started at the first one, started again after a crash."""

    def __init__(self, name: str, python: str, folder: Path) -> None:
        self.name = name
        self.python = python or sys.executable
        self.folder = folder
        self.log = folder / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False
        self._starting = threading.Lock()

    def start(self) -> None:
        """Start the process and wait until it has imported its framework. Raises BackendError."""
        with self._starting:
            if self._closed:
                raise BackendError(f"{self.name}: is closed")
            self._process = self._spawn()
        self._expect("ready")

    def do(self, job: Job) -> Answer:
        """Run one job; an answer of status error stands for every way to fail."""
        try:
            if self._process is None:
                self.start()
            assert self._process
            assert self._process.stdin
            self._process.stdin.write(msgspec.json.encode(job) + b"\n")
            self._process.stdin.flush()
            return self._expect("done", "usage", "error")
        except (BackendError, OSError) as error:
            self.stop()
            return Answer(status="error", message=f"{error}{self._last_lines()}")

    def close(self) -> None:
        """End the process for good: a thread that still feeds jobs does not start another."""
        with self._starting:
            self._closed = True
        self.stop()

    def stop(self) -> None:
        """End the process and all that it started."""
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            for pipe in (process.stdin, process.stdout):
                with contextlib.suppress(OSError):
                    pipe.close()  # type: ignore[union-attr]

    def _spawn(self) -> subprocess.Popen[bytes]:
        try:
            with self.log.open("ab") as log:
                return subprocess.Popen(
                    [self.python, "-m", PACKAGES[self.name]],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    env=environment(self.folder),
                    start_new_session=True,
                )
        except OSError as error:
            raise BackendError(f"{self.name}: cannot start {shlex.quote(self.python)}: {error}") from None

    def _expect(self, *statuses: str) -> Answer:
        process = self._process
        assert process
        assert process.stdout
        if not select.select([process.stdout], [], [], PATIENCE)[0]:
            raise BackendError(f"{self.name}: no answer within {PATIENCE:.0f} s")
        line = process.stdout.readline()
        if not line:
            raise BackendError(f"{self.name}: the process ended with status {process.wait()}")
        try:
            answer = msgspec.json.decode(line, type=Answer)
        except msgspec.MsgspecError:
            said = line.decode(errors="replace").strip()
            raise BackendError(f"{self.name}: expected an answer, {self.python} printed {said!r}") from None
        if answer.status not in statuses:
            raise BackendError(f"{self.name}: {answer.message}")
        return answer

    def _last_lines(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()[-LAST_LINES:] if self.log.exists() else []
        return "".join(f"\n    {line}" for line in lines)


@contextlib.contextmanager
def running(backends: Sequence[Backend]) -> Iterator[Sequence[Backend]]:
    """The backends are ended when the block is left, however it is left."""
    try:
        yield backends
    finally:
        for backend in backends:
            backend.close()


def feed(backends: dict[Backend, list[Job]]) -> Iterator[Result]:
    """Give each backend its jobs in order, all backends at the same time; results as they come."""
    results: queue.SimpleQueue[Result] = queue.SimpleQueue()

    def work(backend: Backend, jobs: list[Job]) -> None:
        for number, job in enumerate(jobs):
            try:
                answer = backend.do(job)
            except Exception as error:  # a thread that died would leave the reader waiting
                answer = Answer(status="error", message=f"{backend.name}: {type(error).__name__}: {error}")
            results.put(Result(backend.name, number, answer))

    for backend, jobs in backends.items():
        threading.Thread(target=work, args=(backend, jobs), daemon=True).start()
    for _ in range(sum(map(len, backends.values()))):
        yield results.get()
