"""The parent's side of one child process: fork it, send it jobs, read its answers, end it with its own children."""

import contextlib
import os
import select
import shlex
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO

import msgspec

from parity.core.errors import BackendError, MissingError
from parity.runtime.environment import MISSING, not_installed
from parity.runtime.job import Answer, Work

LAST_LINES = 8
SETTLE = 0.02  # seconds between the first answer and the choice of which rank's failure to report
LOOKS = 10  # how often progress is checked while waiting for `patience` seconds
POLL = 0.005  # seconds between two looks at whether a process has ended
STATUS = 16  # bytes of a process's id, or status, at most
ENDING = "the job was not run because the program is ending"
DUMP = 0.5  # seconds in which a process writes its stack traces


class HungError(BackendError):
    """A process that neither answered nor made progress in time."""


class Child:
    """A running process of a backend, which leads a process group of its own.

    `name`: what errors call it, `backend`: whose it is, `python`: its interpreter. `process`: started here, or forked.
    """

    def __init__(
        self, name: str, backend: str, python: str, process: "subprocess.Popen[bytes] | _Forked", log: Path
    ) -> None:
        self.name, self.backend, self.python, self.log = name, backend, python, log
        self._process = process
        assert process.stdout
        self._stdin, self._stdout = process.stdin, process.stdout

    def give(self, job: Work) -> None:
        """Send a job to the process. Raises BackendError if the process has ended."""
        assert self._stdin
        try:
            self._stdin.write(msgspec.json.encode(job) + b"\n")
            self._stdin.flush()
        except OSError:
            raise BackendError(f"{self.name}: {self._end()}{self.last_lines()}") from None

    def answer(self, *statuses: str) -> Answer:
        """Wait for the next answer, of an expected status. Raises BackendError, and MissingError for a package."""
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
            os.kill(self._process.pid, signal.SIGUSR1)

    def stop(self) -> None:
        """Kill the process and all processes that it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for pipe in filter(None, (self._stdin, self._stdout)):
            with contextlib.suppress(OSError):
                pipe.close()

    def alive(self) -> bool:
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


class _Forked:
    """A process that another one has forked, which tells of it what subprocess.Popen tells of one's own.

    `told`: the socket of the request; `stdin`, `stdout`: descriptors of this end of its pipes. It owns all three unless
    it raises OSError or ValueError, as where the other has ended.
    """

    def __init__(self, told: socket.socket, stdin: int, stdout: int) -> None:
        said, (self._descriptor, *_), *_ = socket.recv_fds(told, STATUS, 1)
        self.pid, self._told = int(said), told
        self.stdin: IO[bytes] | None = os.fdopen(stdin, "wb")
        self.stdout: IO[bytes] | None = os.fdopen(stdout, "rb")
        self._status: int | None = None
        self._asking = threading.Lock()  # whoever ends the program may ask while another thread waits

    def poll(self) -> int | None:
        with self._asking:
            if self._status is None and select.select([self._descriptor], [], [], 0)[0]:
                with self._told:
                    self._status = int(self._told.recv(STATUS) or -signal.SIGKILL)  # nothing where the other has ended
                os.close(self._descriptor)
            return self._status

    def wait(self) -> int:
        while (status := self.poll()) is None:
            time.sleep(POLL)
        return status


class ForkServer:
    """The process of a backend that imports its framework, once, and forks those that run jobs (`serve.forks`)."""

    def __init__(self, backend: str, command: Sequence[str]) -> None:
        self._backend, self._command = backend, command
        self._child: Child | None = None
        self._closed = False
        self._importing, self._starting = threading.Lock(), threading.Lock()

    def start(self, variables: dict[str, str], log: Path, patience: float) -> None:
        """Start it unless it runs, and wait until its framework is imported. Raises BackendError and MissingError."""
        with self._importing:
            if self._child and self._child.alive():
                return
            self._end()
            self._child = self._started(variables, log)
            try:
                list(answers([self._child], patience, "ready"))
            except (BackendError, MissingError):
                self._end()
                raise

    def fork(self, name: str, variables: dict[str, str], log: Path) -> Child:
        """Return a new process with these environment variables. Raises BackendError if the server has ended."""
        (jobs, stdin), (stdout, said) = os.pipe(), os.pipe()
        ends, telling = socket.socketpair(type=socket.SOCK_SEQPACKET)
        try:
            with telling, log.open("ab") as stderr:
                given = [jobs, said, stderr.fileno(), telling.fileno()]
                socket.send_fds(self._requests, [msgspec.json.encode(variables)], given)
            process = _Forked(ends, stdin, stdout)
        except (OSError, ValueError):
            ends.close()
            os.close(stdin)
            os.close(stdout)
            ended = f"the process that was to fork it has ended{self._child.last_lines() if self._child else ''}"
            raise BackendError(f"{name}: {ended}") from None
        finally:
            os.close(jobs)
            os.close(said)
        return Child(name, self._backend, self._command[0], process, log)

    def stop(self) -> None:
        """End it for ever. The processes that it has forked go on."""
        with self._starting:
            self._closed = True
            self._end()

    def _end(self) -> None:
        if self._child:
            self._child.stop()
            self._requests.close()

    def _started(self, variables: dict[str, str], log: Path) -> Child:
        python = self._command[0]
        with self._starting:
            if self._closed:
                raise BackendError(f"{self._backend}: {ENDING}")
            self._requests, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
            try:
                with theirs, log.open("ab") as stderr:
                    process = subprocess.Popen(
                        self._command,
                        stdin=theirs.fileno(),
                        stdout=subprocess.PIPE,
                        stderr=stderr,
                        env=variables,
                        start_new_session=True,
                    )
            except OSError as error:
                self._requests.close()
                raise BackendError(f"{self._backend}: cannot start {shlex.quote(python)}: {error}") from None
            self._child = Child(self._backend, self._backend, python, process, log)
            return self._child


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
        if not ready:
            if (now := progress()) != latest:
                deadline, latest = time.monotonic() + patience, now
            elif not left:
                silent = ", ".join(child.name for child in waiting)
                raise HungError(f"{silent}: no answer within {patience:g} s{waiting[0].last_lines()}")
            continue
        if len(waiting) > 1:
            # When a rank dies, the others report lost connections, perhaps before its end is noticed. Wait a moment,
            # and read the answers of dead processes first, so that the error names the cause.
            time.sleep(SETTLE)
            ready = select.select(waiting, [], [], 0)[0]
        for child in sorted(ready, key=Child.alive):
            waiting.remove(child)
            yield child.answer(*statuses)
