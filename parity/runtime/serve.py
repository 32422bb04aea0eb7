"""The child's side of a backend: a process that imports a framework, and its forks, which run the jobs.

A fork reads jobs from stdin and answers on stdout. It starts in milliseconds, where an import takes seconds, and shares
the memory of all that is imported; the rest is its own, but for the seed of `hash`. Both exit when the parent ends.
"""

import contextlib
import errno
import gc
import io
import os
import queue
import select
import socket
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from typing import NoReturn, TextIO, TypeVar

import msgspec
import numpy as np
from msgspec.structs import replace

from parity.core import program
from parity.core.errors import BackendError, MissingError, UsageError, printable
from parity.runtime.job import Answer, BenchJob, Work

T = TypeVar("T")
Run = Callable[[Work], None]
Following = Callable[[], BenchJob]  # answers that a burst has ended, and returns the next one
Bench = Callable[[BenchJob, Following], None]
REQUEST = 1 << 20  # bytes of a request at most: the variables of an environment
FULL = (errno.ENOSPC, errno.EDQUOT)


def forks(imports: Callable[[], None] = lambda: None) -> None:
    """Import a framework, say "ready", and return in a new process for each request on stdin; exit with the parent.

    A request is the variables of the new process's environment, with descriptors of its stdin, stdout and stderr, and
    of a socket. There the parent is told its id, with a descriptor of it, and its exit status when it has ended.

    `imports` must start no threads, as a fork does not copy them. If it raises MissingError, that is the only answer.
    """
    answers = _answers()
    _load(imports, answers)
    gc.collect()
    gc.freeze()  # the collector would write to all that is imported, and so copy it into each fork
    _say(answers, Answer(status="ready"))
    requests = socket.socket(fileno=os.dup(0))
    running: dict[int, tuple[int, socket.socket]] = {}  # the ids and sockets, by the descriptors of the processes
    while True:
        for ready in select.select([requests.fileno(), *running], [], [])[0]:
            if ready != requests.fileno():
                _tell_end(*running.pop(ready))
                os.close(ready)
                continue
            variables, descriptors, *_ = socket.recv_fds(requests, REQUEST, 4)
            if not variables:
                os._exit(0)
            asker = socket.socket(fileno=descriptors.pop())
            if not (pid := os.fork()):
                answers.close()
                for unused in (requests, asker, *(further for _, further in running.values())):
                    unused.close()
                for descriptor in running:
                    os.close(descriptor)
                return _become(msgspec.json.decode(variables, type=dict[str, str]), descriptors)
            os.setpgid(pid, pid)
            running[process := os.pidfd_open(pid)] = pid, asker
            socket.send_fds(asker, [str(pid).encode()], [process])
            for each in descriptors:
                os.close(each)


def _tell_end(pid: int, asker: socket.socket) -> None:
    """Reap a process that has ended, and tell its status, if anybody still wants to know it."""
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with asker, contextlib.suppress(OSError):
        asker.send(str(status).encode())


def _become(variables: dict[str, str], descriptors: Sequence[int]) -> None:
    """Take what a request gives to the process that was forked for it, and what it may not share with the others."""
    os.setpgid(0, 0)
    for standard, given in enumerate(descriptors):
        os.dup2(given, standard)
        os.close(given)
    os.environ.clear()
    os.environ.update(variables)
    tempfile.tempdir = None  # it is remembered; TMPDIR is another now
    np.random.seed()  # Python's own generator does so by itself


def serve(load: Callable[[], Run], bench: Bench | None = None, imports: Callable[[], None] = lambda: None) -> NoReturn:
    """Fork on request; in a fork, answer jobs until stdin ends, then exit. `load` returns the function that runs a job.

    `bench` trains in bursts until the process is ended: it gets the first, and a function that returns the next ones.
    `imports`: what all processes share (see `forks`).

    Anything else that is printed to stdout goes to stderr. When the parent ends, a job in progress is abandoned,
    because nobody would read its result. If `load` raises MissingError, that is the only answer.
    """
    forks(imports)
    answers = _answers()
    # A user's program must not read the jobs; and a process that it forks would wait for the thread that reads
    # sys.stdin, which a fork does not copy.
    stdin, sys.stdin = os.fdopen(os.dup(0), encoding="utf-8"), io.StringIO()
    jobs: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(stdin, jobs), daemon=True).start()
    run = _load(load, answers)
    _say(answers, Answer(status="ready"))

    def following() -> BenchJob:
        _say(answers, Answer(status="done"))
        return msgspec.json.decode(jobs.get(), type=BenchJob)

    while True:
        job = msgspec.json.decode(jobs.get(), type=Work)
        if isinstance(job, BenchJob):  # that a burst has ended is said by `following`: where `bench` returns, it failed
            assert bench
            _say(answers, _do(partial(bench, job, following), job))
        else:
            _say(answers, _do(partial(run, job), job))


def _answers() -> TextIO:
    """Return stdout as the stream of answers; what others print to it goes to stderr from now on."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return answers


def _load(load: Callable[[], T], answers: TextIO) -> T:
    """Return what `load` returns; if a package is missing, say so, and exit."""
    try:
        return load()
    except MissingError as error:
        _say(answers, Answer(status="missing", message=str(error)))
        sys.exit(3)


def _listen(stdin: TextIO, jobs: queue.SimpleQueue[str]) -> None:
    """Queue the jobs from stdin; when it ends, end the process."""
    for line in stdin:
        jobs.put(line)
    # Skip the interpreter's teardown, in which process groups and their threads may wait for ever.
    os._exit(0)


def _do(run: Callable[[], None], job: Work) -> Answer:
    start = time.perf_counter()
    try:
        run()
    except UsageError as error:
        return Answer(status="usage", message=str(error))
    except (Exception, SystemExit, KeyboardInterrupt) as error:  # reported as this job's answer; later jobs still run
        if _is_full(error):
            message = f"{job.folder}: the disk is full; set TMPDIR (or --keep, --out) to a folder on a larger disk"
            return Answer(status="error", message=message)
        if isinstance(error, BackendError):
            return Answer(status="error", message=str(error))
        traceback.print_exc()
        return Answer(status="error", message=f"{type(error).__name__}: {error}")
    finally:
        program.free(always=False)
    return Answer(status="done", seconds=time.perf_counter() - start)


def _is_full(error: BaseException | None) -> bool:
    """Return whether a full disk caused the error.

    Its chain of causes is searched, because tensors are recorded inside calls of the user's code, which may wrap it.
    TensorFlow keeps no more than the text of an error within a graph.
    """
    while error and not (isinstance(error, OSError) and error.errno in FULL):
        if any(f"OSError: [Errno {number}]" in str(error) for number in FULL):
            return True
        error = error.__cause__
    return error is not None


def _say(answers: TextIO, answer: Answer) -> None:
    answer = replace(answer, message=printable(answer.message))
    answers.write(msgspec.json.encode(answer).decode() + "\n")
    answers.flush()
