"""The child's side of a backend: read jobs from stdin, answer on stdout, exit when the parent ends.

An answer names the settings of the process that a user's code has left changed for all that runs after it.
"""

import errno
import io
import os
import queue
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from typing import NoReturn, TextIO

import msgspec
import numpy as np

from parity.core.errors import BackendError, MissingError, UsageError, printable
from parity.runtime.job import Answer, BenchJob, Work, owner

Run = Callable[[Work], None]
Following = Callable[[], BenchJob]  # answers that a burst has ended, and returns the next one
Bench = Callable[[BenchJob, Following], None]
Settings = Callable[[], Mapping[str, str]]
HALF = 0.5
FULL = (errno.ENOSPC, errno.EDQUOT)


def serve(load: Callable[[], Run], settings: Settings = dict, bench: Bench | None = None) -> NoReturn:
    """Answer jobs until stdin ends, then exit; `load` imports the framework and returns the function that runs a job.

    `settings` returns the framework's global settings, by which it is seen whether a pair's code has changed them.
    `bench` trains in bursts until the process is ended: it gets the first, and a function that returns the next ones.

    Anything else that is printed to stdout goes to stderr. When the parent ends, a job in progress is abandoned,
    because nobody would read its result. If `load` raises MissingError, that is the only answer.
    """
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    # A user's program must not read the jobs; and a process that it forks would wait for the thread that reads
    # sys.stdin, which a fork does not copy.
    stdin, sys.stdin = os.fdopen(os.dup(0), encoding="utf-8"), io.StringIO()
    jobs: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(stdin, jobs), daemon=True).start()
    try:
        run = load()
    except MissingError as error:
        _say(answers, Answer(status="missing", message=str(error)))
        sys.exit(3)
    _say(answers, Answer(status="ready"))

    def following() -> BenchJob:
        _say(answers, Answer(status="done"))
        return msgspec.json.decode(jobs.get(), type=BenchJob)

    def in_bursts(job: Work) -> None:
        assert bench and isinstance(job, BenchJob)
        bench(job, following)

    while True:
        job = msgspec.json.decode(jobs.get(), type=Work)
        if isinstance(job, BenchJob):
            _say(answers, _do(in_bursts, job))  # that a burst has ended is said by `following`: here it has failed
            continue
        before = _settings(settings, job)
        answer = _do(run, job)
        left = _changed(before, _settings(settings, job))
        _say(answers, msgspec.structs.replace(answer, settings=left))


def _listen(stdin: TextIO, jobs: queue.SimpleQueue[str]) -> None:
    """Queue the jobs from stdin; when it ends, end the process."""
    for line in stdin:
        jobs.put(line)
    # Skip the interpreter's teardown, in which process groups and their threads may wait for ever.
    os._exit(0)


def _settings(settings: Settings, job: Work) -> dict[str, str]:
    """Return the global settings, for a job of a pair; nothing for others, whose code is this project's."""
    return {**_process(), **settings()} if owner(job) else {}


def _do(run: Run, job: Work) -> Answer:
    start = time.perf_counter()
    try:
        run(job)
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
    answer = msgspec.structs.replace(answer, message=printable(answer.message))
    answers.write(msgspec.json.encode(answer).decode() + "\n")
    answers.flush()


def _process() -> dict[str, str]:
    """Return the settings of the process itself, by name, as text."""
    told = {
        "os.getcwd": os.getcwd(),
        "os.environ": dict(os.environ),
        "numpy.geterr": np.geterr(),
        # Where the processor flushes denormal numbers to zero, half of the smallest normal number is 0.
        "denormals": sys.float_info.min * HALF > 0,
    }
    return {name: repr(value) for name, value in told.items()}


def _changed(before: dict[str, str], after: dict[str, str]) -> list[str]:
    """Return the names of the settings that are not what they were. What is told only since is no change."""
    return sorted(name for name, value in before.items() if after.get(name) != value)
