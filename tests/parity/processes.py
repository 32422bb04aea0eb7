"""Programs that tests start and send signals to: with a shell's dispositions of signals, and always ended."""

import contextlib
import io
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import pytest
from slow import WAIT

SENT = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
Program = subprocess.Popen[str]


class Ended(NamedTuple):
    """What a program has left: its exit status, and what it has written."""

    status: int
    out: str
    err: str


def within(entry: Callable[[], object], *argv: object) -> Ended:
    """What a program's entry does with these arguments within this process, where starting one adds nothing."""
    out, err = io.StringIO(), io.StringIO()
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        mock.patch.object(sys, "argv", [*map(str, argv)]),
        pytest.raises(SystemExit) as end,
    ):
        entry()
    return Ended(int(end.value.code or 0), out.getvalue(), err.getvalue())


@contextlib.contextmanager
def started(*arguments: object, ignored: Collection[signal.Signals] = (), **options: Any) -> Iterator[Program]:
    """Start Python with these arguments; end it with the block, and with it the processes that it has started.

    A program inherits which signals are ignored, and whoever runs the tests may ignore some (`nohup`, a shell's `&`).
    Here those in `ignored` are, and no others. A session of its own keeps a terminal's hang-up from it.
    """

    def dispose() -> None:
        for number in SENT:
            signal.signal(number, signal.SIG_IGN if number in ignored else signal.SIG_DFL)

    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    command = [sys.executable, *map(str, arguments)]
    with subprocess.Popen(command, preexec_fn=dispose, start_new_session=True, **pipes | options) as program:
        try:
            yield program
        finally:
            program.terminate()  # so that it ends its own; nothing where it has ended
            with contextlib.suppress(subprocess.TimeoutExpired):
                program.wait(timeout=WAIT)
            program.kill()


def until(condition: Callable[[], bool], program: Program, within: float = WAIT) -> None:
    """Wait for a condition, which a running program brings about."""
    deadline = time.monotonic() + within
    while not condition():
        assert program.poll() is None, program.communicate()
        assert time.monotonic() < deadline, f"nothing within {within:g} s"
        time.sleep(0.02)


def ended(pid: int, within: float = 10.0) -> bool:
    """Return whether a process is gone, or only waits to be reaped, within so many seconds."""
    deadline = time.monotonic() + within
    while True:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.02)
