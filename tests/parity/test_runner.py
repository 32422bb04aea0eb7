"""The runner, with stand-ins for the processes: who runs when, and what becomes of jobs that fail or are not run."""

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from slow import WAIT

from parity.config import cases
from parity.core.errors import MissingError
from parity.runtime import runner as runners
from parity.runtime.job import Answer, Job
from parity.runtime.runner import QUEUE, Runner, begun, both, ended, in_order


class StandIn:
    """A backend without a process, which runs what a test tells it to."""

    kind = "cpu"

    def __init__(self, name: str, folder: Path, run: Callable[[Job], object]) -> None:
        self.name, self.folder, self.run = name, folder, run
        self.others: list[StandIn] = []
        self.closed = False
        self.last: str | None = None

    def do(self, job: Job) -> Answer:
        self.last = job.folder
        self.run(job)
        return Answer(status="done", message=job.folder)

    def serves(self, job: Job) -> bool:
        return self.last in (None, job.folder)

    def another(self, number: int) -> "StandIn":
        self.others.append(StandIn(f"{self.name}-{number}", self.folder, self.run))
        return self.others[-1]

    def close(self) -> None:
        self.closed = True


@pytest.fixture(autouse=True)
def two_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})


def runner(folder: Path, **run: Callable[[Job], object]) -> Any:
    return Runner([StandIn(name, folder, function) for name, function in run.items()])  # type: ignore[list-item]


def job(name: str) -> Job:
    return Job(case=cases.resolve("simple_block/single"), runs=[], folder=name)


def one_at_a_time() -> Callable[[Job], object]:
    """A job that must not run beside another of its kind."""
    running: list[str] = []

    def alone(job: Job) -> None:
        assert not running
        running.append(job.folder)
        time.sleep(0.05)
        running.remove(job.folder)

    return alone


def test_both_sides_work_at_the_same_time(tmp_path: Path) -> None:
    meeting = threading.Barrier(2, timeout=WAIT)
    with runner(tmp_path, torch=lambda _: meeting.wait(), keras=lambda _: meeting.wait()) as both_sides:
        answers = both({side: job(side.name) for side in both_sides.sides})
    assert {name: answer.message for name, answer in answers.items()} == {"torch": "torch", "keras": "keras"}


def test_sides_that_have_not_the_memory_for_both_work_in_turn(tmp_path: Path) -> None:
    alone = one_at_a_time()
    with runner(tmp_path, torch=alone, keras=alone) as both_sides:
        answers = both({side: job(side.name) for side in both_sides.sides}, in_turn=True)
    assert [answer.status for answer in answers.values()] == ["done", "done"]


def test_jobs_of_a_side_wait_for_its_one_process(tmp_path: Path) -> None:
    alone = one_at_a_time()
    with runner(tmp_path, torch=alone) as one_side:
        (side,) = one_side.sides
        answers = [begun(lambda: side.do(job("one"))) for _ in range(QUEUE)]
        assert [ended(answer).status for answer in answers] == ["done"] * QUEUE
    assert len(side.backends) == 1


@pytest.mark.parametrize(
    ("kind", "memory", "processes"), [("cpu", 1 << 40, 2), ("gpu", 1 << 40, 1), ("cpu", 1 << 30, 1)]
)
def test_another_process_starts_where_jobs_wait_and_there_is_room(
    kind: str, memory: int, processes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two work at the same time where there are two processors, and never more."""
    monkeypatch.setattr(runners, "memory", lambda: memory)
    monkeypatch.setattr(StandIn, "kind", kind)
    most, running, lock = 0, 0, threading.Lock()

    def counted(_: Job) -> None:
        nonlocal most, running
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.05)
        with lock:
            running -= 1

    with runner(tmp_path, keras=counted) as one_side:
        (side,) = one_side.sides
        answers = [begun(lambda: side.do(job("one"))) for _ in range(3 * QUEUE)]
        assert {ended(answer).status for answer in answers} == {"done"}
    # Where there is one side alone, as many run as there are processors.
    assert (most, len(side.backends)) == (processes, processes)
    assert all(backend.closed for backend in side.backends)


def test_the_earliest_that_can_run_comes_first(tmp_path: Path) -> None:
    """Jobs wait in line, but not behind jobs of a side whose processes are busy."""
    order: list[str] = []
    go = threading.Event()

    def first_waits(job: Job) -> None:
        order.append(job.folder)
        if job.folder == "long":
            go.wait(60)

    with runner(tmp_path, torch=first_waits, keras=first_waits) as both_sides:
        torch, keras = both_sides.sides
        long = begun(lambda: torch.do(job("long")))
        while not order:
            time.sleep(0.01)
        second = begun(lambda: torch.do(job("second")))
        while len(both_sides._turns._waiting) < 1:
            time.sleep(0.01)
        assert keras.do(job("other")).status == "done"
        assert both_sides.doing() == {"torch": "simple_block/single", "keras": ""}
        go.set()
        assert ended(long).status == ended(second).status == "done"
    assert order == ["long", "other", "second"]


def test_what_goes_wrong_with_a_job_is_its_answer(tmp_path: Path) -> None:
    def fails(job: Job) -> None:
        raise OSError("no space") if job.folder == "full" else MissingError("torch: not installed")

    with runner(tmp_path, torch=fails) as one_side:
        (side,) = one_side.sides
        assert side.do(job("full")) == Answer(status="error", message="torch: OSError: no space")
        with pytest.raises(MissingError, match="not installed"):  # all other jobs would fail alike
            side.do(job("missing"))


def test_a_job_that_waits_is_not_run_once_the_program_ends(tmp_path: Path) -> None:
    started, go = threading.Event(), threading.Event()

    def waits(_: Job) -> None:
        started.set()
        go.wait(60)

    with runner(tmp_path, torch=waits) as one_side:
        (side,) = one_side.sides
        running = begun(lambda: side.do(job("running")))
        assert started.wait(60)
        waiting = begun(lambda: side.do(job("waiting")))
    assert ended(waiting).message == "torch: the job was not run because the program is ending"
    assert side.do(job("late")).status == "error"
    go.set()
    ended(running)


def test_results_come_in_order_while_others_are_begun() -> None:
    begun_so_far: list[int] = []
    slow = threading.Event()

    def work(number: int) -> int:
        begun_so_far.append(number)
        if number == 0:
            slow.wait(60)
        return number

    results = in_order(range(6), work, ahead=3)
    threading.Timer(0.2, slow.set).start()
    assert next(results) == 0
    assert sorted(begun_so_far[:3]) == [0, 1, 2]
    assert list(results) == [1, 2, 3, 4, 5]


def test_an_error_in_one_ends_all() -> None:
    results = in_order([1, 0, 1], lambda number: 1 / number, ahead=2)
    assert next(results) == 1.0
    with pytest.raises(ZeroDivisionError):
        next(results)
