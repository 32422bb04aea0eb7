"""Groups of ranks: one that crashes, raises or hangs ends its job and its group alone. Stand-ins play the ranks."""

import os
import select
import sys
import time
from pathlib import Path

import pytest
from processes import ended
from slow import is_within, sampled, slowness
from stand_ins import ANSWERS, PRELUDE, RANKS, SLEEPS, Stage, job, only_rank_1

from parity.core.errors import BackendError
from parity.runtime import child
from parity.runtime.backend import Backend, running
from parity.runtime.child import ForkServer, answers

FAILURES = {
    "crashes": (
        'say("ready"); sys.stdin.readline(); note("out of memory"); os._exit(9)',
        "torch rank 1: the process ended with status 9\n    out of memory",
    ),
    "is killed": (
        'say("ready"); sys.stdin.readline(); note("last words"); os.kill(os.getpid(), 9)',
        "torch rank 1: the process ended with status -9\n    last words",
    ),
    "raises": (
        'say("ready"); sys.stdin.readline(); note("Traceback: here"); say("error", "ValueError: 3"); time.sleep(600)',
        "torch rank 1: ValueError: 3\n    Traceback: here",
    ),
    "babbles": (
        'say("ready"); sys.stdin.readline(); note("a warning"); print("hello", flush=True); time.sleep(600)',
        "torch rank 1: expected an answer, ",
    ),
    "crashes while it starts": (
        'note("no such library"); os._exit(4)',
        "torch rank 1: the process ended with status 4\n    no such library",
    ),
    "raises while it starts": (
        'say("error", "torch is not installed"); time.sleep(600)',
        "torch rank 1: torch is not installed",
    ),
}


@pytest.mark.parametrize("what", FAILURES)
def test_a_rank_that_fails_is_named_and_ends_the_job_at_once(what: str, stage: Stage) -> None:
    code, said = FAILURES[what]
    backend = stage.backend(only_rank_1(code))
    start = time.monotonic()
    answer = backend.do(job(stage.folder))
    assert is_within(time.monotonic() - start, 10.0)  # long before the patience
    assert (answer.status, answer.message[: len(said)]) == ("error", said)
    assert stage.running() == []  # the other ranks' too, before the backend is closed
    assert {rank for rank, _ in stage.started()} <= set(range(RANKS))


SAYS = 'say("error", "connection closed by peer"); time.sleep(600)'
ENDS = 'note("segmentation fault"); os._exit(9)'


@pytest.mark.parametrize("dead", range(RANKS))
def test_of_ranks_that_answer_at_the_same_time_the_dead_one_is_named(dead: int, tmp_path: Path) -> None:
    """The others lose their connections to it, and say so."""
    children = []
    command = [sys.executable, "-c", f"{PRELUDE}if rank == {dead}:\n    {ENDS}\n{SAYS}"]
    server, variables = ForkServer("torch", command), dict(os.environ)
    try:
        server.start(variables, tmp_path / "server.log", 60.0)
        for rank in range(RANKS):
            own = variables | {"RANK": str(rank)}
            children.append(server.fork(f"rank {rank}", own, tmp_path / f"{rank}.log"))
        deadline = time.monotonic() + 60
        while len(select.select(children, [], [], 0)[0]) < RANKS or children[dead].alive():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert [each.alive() for each in children] == [rank != dead for rank in range(RANKS)]
        with pytest.raises(BackendError) as error:
            list(answers(children, 60.0, "done"))
        assert str(error.value) == f"rank {dead}: the process ended with status 9\n    segmentation fault"
    finally:
        for each in (*children, server):
            each.stop()


def test_a_rank_that_dies_just_after_another_has_complained_is_named(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child, "SETTLE", 1.0)  # "just after", on a machine that is busy
    said = stage.folder / "said"
    dies = f"""say("ready")
sys.stdin.readline()
while not os.path.exists({str(said)!r}):
    time.sleep(0.001)
time.sleep(0.2)
os._exit(9)
"""
    says = f"""say("ready")
sys.stdin.readline()
say("error", "connection closed by peer")
open({str(said)!r}, "w").close()
time.sleep(600)
"""
    backend = stage.backend(only_rank_1(dies, says))
    with running([backend]):
        answer = backend.do(job(stage.folder))
    assert answer.status == "error"
    assert answer.message.startswith("torch rank 1: the process ended with status 9")


def test_a_rank_that_complains_while_all_live_is_named_at_once(stage: Stage) -> None:
    complains = 'say("ready"); sys.stdin.readline(); say("error", "ValueError: 3"); time.sleep(600)'
    backend = stage.backend(only_rank_1(complains))
    with running([backend]):
        start = time.monotonic()
        answer = backend.do(job(stage.folder))
    assert (answer.status, answer.message) == ("error", "torch rank 1: ValueError: 3")
    assert is_within(time.monotonic() - start, 10.0)


@pytest.mark.parametrize("where", sampled(["at work", "while it starts"], "while it starts"))
def test_a_rank_that_hangs_is_named_within_the_patience(where: str, stage: Stage) -> None:
    before = 'say("ready"); sys.stdin.readline(); ' if where == "at work" else ""
    patience = 1.5 * slowness()
    backend = stage.backend(only_rank_1(f'{before}note("waiting for the others"); time.sleep(600)', ANSWERS), patience)
    start = time.monotonic()
    answer = backend.do(job(stage.folder))
    took = time.monotonic() - start
    assert patience - 0.1 < took and is_within(took, 4 * patience)
    assert answer.status == "error"
    assert answer.message.startswith(f"torch rank 1: no answer within {patience:g} s\n    waiting for the others\n")
    assert "--timeout=SECONDS" in answer.message
    assert stage.running() == []


@pytest.mark.slow
def test_all_ranks_that_are_silent_are_named(stage: Stage) -> None:
    answer = stage.backend(SLEEPS, 1.0).do(job(stage.folder))
    assert answer.message.startswith("torch rank 0, torch rank 1, torch rank 2: no answer within 1 s")


def test_the_last_lines_are_the_rank_s_own_and_the_last(stage: Stage) -> None:
    lines = '[note(f"rank {rank} line {n}") for n in range(30)]'
    dies = 'say("ready"); sys.stdin.readline(); time.sleep(0.3); os._exit(1)'
    backend = stage.backend(f"{lines}\n{only_rank_1(dies)}")
    message = backend.do(job(stage.folder)).message
    assert message.splitlines()[1:] == [f"    rank 1 line {n}" for n in range(22, 30)]
    assert "rank 2 line 29" in (stage.folder / "torch-rank-2.log").read_text()


def test_an_interpreter_that_is_missing_leaves_nothing(stage: Stage) -> None:
    with running([Backend("torch", "/no/such/python", stage.folder)]) as (backend,):
        answer = backend.do(job(stage.folder))
    assert answer.status == "error"
    assert answer.message.startswith("torch: cannot start /no/such/python")


def test_what_a_rank_started_ends_with_it(stage: Stage) -> None:
    """A loader's worker process, say."""
    started = stage.folder / "child"
    code = (
        "import subprocess\n"
        f'open({str(started)!r}, "w").write(str(subprocess.Popen(["sleep", "600"]).pid)); say("ready")\n'
        "sys.stdin.readline(); time.sleep(600)"
    )
    stage.backend(only_rank_1(code), 1.5 * slowness()).do(job(stage.folder))
    assert ended(int(started.read_text()))
