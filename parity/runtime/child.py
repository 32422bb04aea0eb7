"""The parent's side of one child process: start it, say a line, read a line, end it with all it started."""

import contextlib
import os
import re
import select
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from parity.core.errors import BackendError
from parity.runtime.environment import not_installed
from parity.runtime.job import Answer, Work

LAST_LINES = 8
MISSING = re.compile(r"ModuleNotFoundError: No module named '(\w+)[^']*'\s*\Z")  # the end of a log
SETTLE = 0.02  # seconds
LOOKS = 10  # for progress, within the time that a silent process is given
DUMP = 0.5  # seconds that a process has to write where it is


class HungError(BackendError):
    """A process that did not answer in time."""


class Child:
    """One running process of a backend, in a session of its own. Raises BackendError if it cannot start."""

    def __init__(self, name: str, command: Sequence[str], variables: dict[str, str], log: Path) -> None:
        self.name = name
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
        """Hand a job over. Raises BackendError if the process is gone."""
        try:
            self._stdin.write(msgspec.json.encode(job) + b"\n")
            self._stdin.flush()
        except OSError:
            raise BackendError(f"{self.name}: {self._end()}{self.last_lines()}") from None

    def answer(self, *statuses: str) -> Answer:
        """The next answer, which is there. Raises BackendError if it is the end, or none of `statuses`."""
        line = self._stdout.readline()
        if not line:
            ended = self._end()
            found = MISSING.search(self.last_lines()) if "ready" in statuses else None
            why = not_installed(found[1], self.python) if found else f"{ended}{self.last_lines()}"
            raise BackendError(f"{self.name}: {why}")
        try:
            answer = msgspec.json.decode(line, type=Answer)
        except msgspec.MsgspecError:
            said = line.decode(errors="replace").strip()
            raise BackendError(f"{self.name}: expected an answer, {self.python} printed {said!r}") from None
        if answer.status not in statuses:
            raise BackendError(f"{self.name}: {answer.message}{self.last_lines()}")
        return answer

    def dump(self) -> None:
        """Ask where it is: an examination has prepared an answer to this signal."""
        if self.alive():
            self._process.send_signal(signal.SIGUSR1)

    def stop(self) -> None:
        """End the process and all that it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for pipe in (self._stdin, self._stdout):
            with contextlib.suppress(OSError):
                pipe.close()

    def alive(self) -> bool:
        """Whether the process has not ended."""
        return self._process.poll() is None

    def fileno(self) -> int:
        """For select: readable when an answer is there."""
        return self._stdout.fileno()

    def last_lines(self) -> str:
        """The end of its log, indented."""
        lines = self.log.read_text(errors="replace").splitlines()[-LAST_LINES:] if self.log.exists() else []
        return "".join(f"\n    {line}" for line in lines)

    def _end(self) -> str:
        return f"the process ended with status {self._process.wait()}"


def answers(
    children: Sequence[Child], patience: float, *statuses: str, progress: Callable[[], int] = lambda: 0
) -> Iterator[Answer]:
    """One answer from each child, as they come.

    Raises BackendError for the first child that fails, and HungError where `patience` seconds have passed without an
    answer and without `progress`, a number that changes: with what the silent ones printed last.
    """
    waiting = list(children)
    deadline, known = time.monotonic() + patience, progress()
    while waiting:
        left = max(deadline - time.monotonic(), 0)
        ready = select.select(waiting, [], [], min(left, patience / LOOKS))[0]
        if not ready and (now := progress()) != known:
            deadline, known = time.monotonic() + patience, now
            continue
        if not ready and left > 0:
            continue
        if not ready:
            silent = ", ".join(child.name for child in waiting)
            raise HungError(f"{silent}: no answer within {patience:g} s{waiting[0].last_lines()}")
        if len(waiting) > 1:
            time.sleep(SETTLE)  # where one rank dies the others lose their connections, and may say so first
            ready = select.select(waiting, [], [], 0)[0]
        for child in sorted(ready, key=Child.alive):
            waiting.remove(child)
            yield child.answer(*statuses)
