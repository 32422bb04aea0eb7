"""The parent's side of one child process: start it, send it jobs, read its answers, end it with its own children."""

import contextlib
import os
import select
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from parity.core.errors import BackendError, MissingError
from parity.runtime.environment import MISSING, not_installed
from parity.runtime.job import Answer, Work

LAST_LINES = 8
SETTLE = 0.02  # seconds between the first answer and the choice of which rank's failure to report
LOOKS = 10  # how often progress is checked while waiting for `patience` seconds
DUMP = 0.5  # seconds in which a process writes its stack traces


class HungError(BackendError):
    """A process that neither answered nor made progress in time."""


class Child:
    """A running process of a backend, in a session of its own. Raises BackendError if it cannot be started.

    `name`: what errors call it, `backend`: whose it is.
    """

    def __init__(self, name: str, backend: str, command: Sequence[str], variables: dict[str, str], log: Path) -> None:
        self.name, self.backend = name, backend
        self.python = command[0]
        self.log = log
        try:
            with log.open("ab") as stderr:
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=stderr,
                    env=variables,
                    start_new_session=True,
                )
        except OSError as error:
            raise BackendError(f"{name}: cannot start {shlex.quote(self.python)}: {error}") from None
        assert self._process.stdin
        assert self._process.stdout
        self._stdin, self._stdout = self._process.stdin, self._process.stdout

    def give(self, job: Work) -> None:
        """Send a job to the process. Raises BackendError if the process has ended."""
        try:
            self._stdin.write(msgspec.json.encode(job) + b"\n")
            self._stdin.flush()
        except OSError:
            raise BackendError(f"{self.name}: {self._end()}{self.last_lines()}") from None

    def answer(self, *statuses: str) -> Answer:
        """Wait for the next answer and return it; `statuses` are the expected ones.

        Raises BackendError if the process ended or sent another status, and MissingError if a package is not installed.
        """
        line = self._stdout.readline()
        if not line:
            ended = self._end()
            if "ready" in statuses and (missing := MISSING.search(self.last_lines())):
                raise MissingError(f"{self.backend}: {not_installed(missing[1], self.backend, self.python)}")
            raise BackendError(f"{self.name}: {ended}{self.last_lines()}")
        try:
            answer = msgspec.json.decode(line, type=Answer)
        except msgspec.MsgspecError:
            printed = line.decode(errors="replace").strip()
            raise BackendError(f"{self.name}: expected an answer, but {self.python} printed {printed!r}") from None
        if answer.status == "missing":
            raise MissingError(f"{self.backend}: {answer.message}")
        if answer.status not in statuses:
            raise BackendError(f"{self.name}: {answer.message}{self.last_lines()}")
        return answer

    def dump(self) -> None:
        """Make the process write its stack traces to its log; an examination installs a handler for this signal."""
        if self.alive():
            self._process.send_signal(signal.SIGUSR1)

    def stop(self) -> None:
        """Kill the process and all processes that it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for pipe in (self._stdin, self._stdout):
            with contextlib.suppress(OSError):
                pipe.close()

    def alive(self) -> bool:
        """Return whether the process is still running."""
        return self._process.poll() is None

    def fileno(self) -> int:
        """Return the descriptor for `select`, which is readable when there is an answer."""
        return self._stdout.fileno()

    def last_lines(self) -> str:
        """Return the last lines of the process's log, each on a new line and indented."""
        lines = self.log.read_text(errors="replace").splitlines()[-LAST_LINES:] if self.log.exists() else []
        return "".join(f"\n    {line}" for line in lines)

    def _end(self) -> str:
        return f"the process ended with status {self._process.wait()}"


def answers(
    children: Sequence[Child], patience: float, *statuses: str, progress: Callable[[], int] = lambda: 0
) -> Iterator[Answer]:
    """Yield one answer from each child as they arrive.

    `progress` returns a number that changes as long as the job advances. Raises BackendError or MissingError for the
    first child that fails, and HungError, with the last lines of a log, after `patience` seconds with neither an answer
    nor progress.
    """
    waiting = list(children)
    deadline, latest = time.monotonic() + patience, progress()
    while waiting:
        left = max(deadline - time.monotonic(), 0)
        ready = select.select(waiting, [], [], min(left, patience / LOOKS))[0]
        if not ready and (now := progress()) != latest:
            deadline, latest = time.monotonic() + patience, now
            continue
        if not ready and left > 0:
            continue
        if not ready:
            silent = ", ".join(child.name for child in waiting)
            raise HungError(f"{silent}: no answer within {patience:g} s{waiting[0].last_lines()}")
        if len(waiting) > 1:
            # When a rank dies, the others report lost connections, perhaps before its end is noticed. Wait a moment,
            # and read the answers of dead processes first, so that the error names the cause.
            time.sleep(SETTLE)
            ready = select.select(waiting, [], [], 0)[0]
        for child in sorted(ready, key=Child.alive):
            waiting.remove(child)
            yield child.answer(*statuses)
