"""The child's side: take jobs from stdin, answer on stdout, end when the parent ends."""

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

from parity.core.errors import BackendError, MissingError, UsageError, printable
from parity.runtime.job import Answer, Work
from parity.runtime.settings import changed, owner, process

Run = Callable[[Work], None]
Settings = Callable[[], Mapping[str, str]]
FULL = (errno.ENOSPC, errno.EDQUOT)


def serve(load: Callable[[], Run], settings: Settings = dict) -> NoReturn:
    """Answer jobs until stdin ends, then exit. `load` imports the framework and returns what runs one job.

    `settings`: the framework's global settings, to see whether a pair's code has changed them.

    Whatever else is printed goes to stderr. Once the parent is gone, a job in progress is abandoned:
    its result has no reader. A MissingError of `load` is the only answer.
    """
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    # A program that is run has no input; and a process that it forks would wait for the reader of sys.stdin.
    said, sys.stdin = os.fdopen(os.dup(0), encoding="utf-8"), io.StringIO()
    jobs: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(said, jobs), daemon=True).start()
    try:
        run = load()
    except MissingError as error:
        _say(answers, Answer(status="missing", message=str(error)))
        sys.exit(3)
    _say(answers, Answer(status="ready"))
    while True:
        job = msgspec.json.decode(jobs.get(), type=Work)
        before = _settings(settings, job)
        answer = _do(run, job)
        left = changed(before, _settings(settings, job))
        _say(answers, msgspec.structs.replace(answer, settings=left))


def _listen(said: TextIO, jobs: queue.SimpleQueue[str]) -> None:
    for line in said:
        jobs.put(line)
    # Without the interpreter's teardown: process groups and their threads may wait there for ever.
    os._exit(0)


def _settings(settings: Settings, job: Work) -> dict[str, str]:
    """The global settings around the job of a pair; nothing around others, whose code is this project's."""
    return {**process(), **settings()} if owner(job) else {}


def _do(run: Run, job: Work) -> Answer:
    start = time.perf_counter()
    try:
        run(job)
    except UsageError as error:
        return Answer(status="usage", message=str(error))
    except (Exception, SystemExit, KeyboardInterrupt) as error:  # the other cases go on; the parent reports this one
        if _is_full(error):
            message = f"{job.folder}: the disk is full; set TMPDIR (or --keep, --out) to a folder on a larger one"
            return Answer(status="error", message=message)
        if isinstance(error, BackendError):
            return Answer(status="error", message=str(error))
        traceback.print_exc()
        return Answer(status="error", message=f"{type(error).__name__}: {error}")
    return Answer(status="done", seconds=time.perf_counter() - start)


def _is_full(error: BaseException | None) -> bool:
    """Whether a disk that is full is at the bottom of an error: recording goes on within the user's calls."""
    while error and not (isinstance(error, OSError) and error.errno in FULL):
        error = error.__cause__
    return error is not None


def _say(answers: TextIO, answer: Answer) -> None:
    answer = msgspec.structs.replace(answer, message=printable(answer.message))
    answers.write(msgspec.json.encode(answer).decode() + "\n")
    answers.flush()
