"""Groups of ranks: one that crashes, raises or hangs ends its job and its group alone. Stand-ins play the ranks."""

import json
import os
import re
import select
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from synthetic import NumpySide, record_with, small_case

from parity import standalone
from parity.config import cases
from parity.core.errors import BackendError, UsageError
from parity.runtime import child, drive
from parity.runtime.backend import Backend, running
from parity.runtime.child import Child, answers
from parity.runtime.drive import Account, Rank, Run
from parity.runtime.job import Job
from parity.runtime.ranks import variables
from parity.trace.layout import Layout, Transfer
from parity.trace.manifest import Trace

RANKS = 3
PRELUDE = """import json, os, sys, time
rank = int(os.environ["RANK"]) if "RANK" in os.environ else \\
    json.loads(os.environ.get("TF_CONFIG", '{"task": {"index": 0}}'))["task"]["index"]
def say(status, message="", seconds=0.0):
    print(json.dumps({"status": status, "message": message, "seconds": seconds}), flush=True)
def note(text):
    print(text, file=sys.stderr, flush=True)
"""
ANSWERS = """say("ready")
for line in sys.stdin:
    say("done", seconds=1.0 + rank)
"""
SLEEPS = """say("ready")
sys.stdin.readline()
time.sleep(600)
"""


class Stage:
    """A folder with a stand-in interpreter; each process that it starts leaves its rank and id there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def interpreter(self, code: str) -> str:
        path = self.folder / "python"
        noted = f"open({str(self.folder / 'pids')!r}, 'a').write(f'{{rank}} {{os.getpid()}}\\n')\n"
        path.write_text(f"#!{sys.executable}\n{PRELUDE}{noted}{code}")
        path.chmod(0o755)
        return str(path)

    def backend(self, code: str, patience: float = 20.0, name: str = "torch") -> Backend:
        made = Backend(name, self.interpreter(code), self.folder, patience=patience)
        made.start = patience
        return made

    def started(self) -> list[tuple[int, int]]:
        """The rank and the process id of each process so far."""
        lines = (self.folder / "pids").read_text().splitlines() if (self.folder / "pids").exists() else []
        return [(int(rank), int(pid)) for rank, pid in map(str.split, lines)]

    def running(self) -> list[tuple[int, int]]:
        return [(rank, pid) for rank, pid in self.started() if Path(f"/proc/{pid}").exists()]


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def job(folder: Path, name: str = "simple_block/ddp", devices: int = RANKS, **changes: Any) -> Job:
    return Job(case=cases.resolve(name, {"devices": devices}, changes), runs=["low"], folder=str(folder / "trace"))


def only_rank_1(code: str, others: str = SLEEPS) -> str:
    """What rank 1 does; the others wait for it, as in a collective."""
    indented = (re.sub("^", "    ", part, flags=re.MULTILINE) for part in (code, others))
    return "if rank == 1:\n{}\nelse:\n{}\n".format(*indented)


# What fails


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
    assert time.monotonic() - start < 10.0  # half the patience
    assert (answer.status, answer.message[: len(said)]) == ("error", said)
    assert stage.running() == []  # the other ranks' too, before the backend is closed
    assert {rank for rank, _ in stage.started()} <= set(range(RANKS))
    backend.close()


SAYS = f'{PRELUDE}say("error", "connection closed by peer"); time.sleep(600)'
ENDS = f'{PRELUDE}note("segmentation fault"); os._exit(9)'


@pytest.mark.parametrize("dead", range(RANKS))
def test_of_ranks_that_answer_at_the_same_time_the_dead_one_is_named(dead: int, tmp_path: Path) -> None:
    """The others lose their connections to it, and say so."""
    children = []
    try:
        for rank in range(RANKS):
            command = [sys.executable, "-c", ENDS if rank == dead else SAYS]
            children.append(Child(f"rank {rank}", "torch", command, dict(os.environ), tmp_path / f"{rank}.log"))
        deadline = time.monotonic() + 20
        while len(select.select(children, [], [], 0)[0]) < RANKS or children[dead].alive():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert [each.alive() for each in children] == [rank != dead for rank in range(RANKS)]
        with pytest.raises(BackendError) as error:
            list(answers(children, 20.0, "done"))
        assert str(error.value) == f"rank {dead}: the process ended with status 9\n    segmentation fault"
    finally:
        for each in children:
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
    assert time.monotonic() - start < 10.0


@pytest.mark.parametrize("where", ["at work", "while it starts"])
def test_a_rank_that_hangs_is_named_within_the_patience(where: str, stage: Stage) -> None:
    before = 'say("ready"); sys.stdin.readline(); ' if where == "at work" else ""
    backend = stage.backend(only_rank_1(f'{before}note("waiting for the others"); time.sleep(600)', ANSWERS), 1.5)
    start = time.monotonic()
    answer = backend.do(job(stage.folder))
    assert 1.4 < time.monotonic() - start < 6.0
    assert answer.status == "error"
    assert answer.message.startswith("torch rank 1: no answer within 1.5 s\n    waiting for the others\n")
    assert "--timeout=SECONDS" in answer.message
    assert stage.running() == []


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
    answer = Backend("torch", "/no/such/python", stage.folder).do(job(stage.folder))
    assert answer.status == "error"
    assert answer.message.startswith("torch rank 0: cannot start /no/such/python")


def test_what_a_rank_started_ends_with_it(stage: Stage) -> None:
    """A loader's worker process, say."""
    started = stage.folder / "child"
    code = (
        "import subprocess\n"
        f'open({str(started)!r}, "w").write(str(subprocess.Popen(["sleep", "600"]).pid)); say("ready")\n'
        "sys.stdin.readline(); time.sleep(600)"
    )
    stage.backend(only_rank_1(code), 1.5).do(job(stage.folder))
    assert not alive(int(started.read_text()))


def alive(pid: int) -> bool:
    """Whether a process that is not ours to reap still runs after 5 s."""
    for _ in range(50):
        stat = Path(f"/proc/{pid}/stat")
        if not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z":
            return False
        time.sleep(0.1)
    return True


# What goes on


def test_the_next_job_gets_a_new_group(stage: Stage) -> None:
    """The first rank 1 leaves a mark and dies."""
    mark = stage.folder / "mark"
    code = f"""
first = not os.path.exists({str(mark)!r})
say("ready")
for line in sys.stdin:
    if rank == 1 and first:
        open({str(mark)!r}, "w").close()
        os._exit(1)
    if first:
        time.sleep(600)
    say("done")
"""
    backend = stage.backend(code)
    with running([backend]):
        statuses = [backend.do(job(stage.folder)).status for _ in range(3)]
        assert statuses == ["error", "done", "done"]
        assert sorted(rank for rank, _ in stage.running()) == [0, 1, 2]
    assert len(stage.started()) == 2 * RANKS  # the third job was done by the second group
    assert stage.running() == []


def test_a_group_s_answer_is_that_of_its_slowest_rank(stage: Stage) -> None:
    backend = stage.backend(ANSWERS)
    with running([backend]):
        answer = backend.do(job(stage.folder))
    assert (answer.status, answer.seconds) == ("done", float(RANKS))


def test_a_mistake_of_the_user_s_that_one_rank_finds_is_the_group_s(stage: Stage) -> None:
    code = 'say("ready"); sys.stdin.readline(); say("usage", "no such file"); sys.stdin.read()'
    with running([stage.backend(only_rank_1(code, ANSWERS))]) as (backend,):
        answer = backend.do(job(stage.folder))
    assert (answer.status, answer.message) == ("usage", "no such file")


def test_groups_are_kept_beside_each_other_for_the_same_devices(stage: Stage) -> None:
    """Cases of one process and cases of several come in turn."""
    single, ddp = job(stage.folder, "simple_block/single"), job(stage.folder)
    backend = stage.backend(ANSWERS)
    with running([backend]):
        assert [backend.do(each).status for each in [single, ddp] * 3] == ["done"] * 6
        assert len(stage.running()) == len(stage.started()) == 1 + RANKS


def test_torch_s_one_process_is_kept_for_any_number_of_devices(stage: Stage) -> None:
    """Its devices are virtual: only its groups of ranks depend on the number."""
    backend = stage.backend(ANSWERS)
    with running([backend]):
        for devices in (2, 3, 2):
            for name in ("simple_block/single", "simple_block/ddp", "simple_block/data_parallel"):
                assert backend.do(job(stage.folder, name, devices)).status == "done"
            assert len(stage.running()) == 1 + devices
        assert len(stage.started()) == 1 + 2 + 3 + 2


def test_keras_is_told_of_its_devices_before_it_starts(stage: Stage) -> None:
    backend = stage.backend(ANSWERS, name="keras")
    with running([backend]):
        for devices in (2, 2, 3):
            assert backend.do(job(stage.folder, devices=devices)).status == "done"
        assert (len(stage.running()), len(stage.started())) == (1, 2)


def test_another_number_of_devices_ends_the_groups_before(stage: Stage) -> None:
    backend = stage.backend(ANSWERS)
    with running([backend]):
        assert backend.do(job(stage.folder, devices=2)).status == "done"
        assert backend.do(job(stage.folder, devices=3)).status == "done"
        assert len(stage.running()) == 3
        assert len(stage.started()) == 5


def test_each_rank_is_told_its_place_and_the_devices(stage: Stage) -> None:
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "PARITY_DEVICES", "PARITY_RENDEZVOUS", "MASTER_PORT")
    code = (
        f"told = json.dumps([os.environ.get(name) for name in {names}])\n"
        f"open({str(stage.folder)!r} + f'/told-{{rank}}', 'w').write(told)\n"
    )
    with running([stage.backend(code + ANSWERS)]) as (backend,):
        backend.do(job(stage.folder))
        told = [json.loads((stage.folder / f"told-{rank}").read_text()) for rank in range(RANKS)]
    meeting = (stage.folder / "rendezvous").as_uri()
    assert told == [[str(rank), str(rank), "3", "cpu:3", meeting, None] for rank in range(RANKS)]


def test_keras_workers_are_a_group_and_its_other_cases_are_not(stage: Stage) -> None:
    backend = stage.backend(ANSWERS, name="keras")
    with running([backend]):
        assert backend.do(job(stage.folder)).status == "done"
        assert len(stage.started()) == 1
        assert backend.do(job(stage.folder, "simple_block/ddp@workers")).status == "done"
        assert sorted(rank for rank, _ in stage.started()[1:]) == [0, 1, 2]


def test_a_closed_backend_starts_no_group(stage: Stage) -> None:
    backend = stage.backend(ANSWERS)
    backend.close()
    assert backend.do(job(stage.folder)).message == "torch: the job was not run because the program is ending"
    assert stage.started() == []


# The variables


@pytest.mark.parametrize("backend", ["torch", "keras"])
def test_a_single_process_is_told_nothing(backend: str, tmp_path: Path) -> None:
    assert variables(backend, 1, tmp_path) == [{}]


@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_torch_s_ranks(ranks: int, tmp_path: Path) -> None:
    (tmp_path / "rendezvous").write_text("of ranks that are gone")
    told = variables("torch", ranks, tmp_path)
    assert [(each["RANK"], each["LOCAL_RANK"]) for each in told] == [(str(rank),) * 2 for rank in range(ranks)]
    assert {each["WORLD_SIZE"] for each in told} == {str(ranks)}
    assert {each["PARITY_RENDEZVOUS"] for each in told} == {(tmp_path / "rendezvous").as_uri()}
    assert not (tmp_path / "rendezvous").exists()


def test_the_meeting_place_is_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    meeting = variables("torch", 2, Path("here"))[0]["PARITY_RENDEZVOUS"]
    assert meeting == f"file://{tmp_path}/here/rendezvous"


@pytest.mark.parametrize("ranks", [2, 8])
def test_tensorflow_s_workers(ranks: int, tmp_path: Path) -> None:
    told = [json.loads(each["TF_CONFIG"]) for each in variables("keras", ranks, tmp_path)]
    assert [each["task"] for each in told] == [{"type": "worker", "index": rank} for rank in range(ranks)]
    (workers,) = {tuple(each["cluster"]["worker"]) for each in told}
    assert len(set(workers)) == ranks
    for worker in workers:
        host, _, port = worker.partition(":")
        socket.create_server((host, int(port))).close()  # free, and on this machine alone
        assert host == "127.0.0.1"


# Ranks that record a case together


class Stages(NumpySide):
    """Stages of one replica: each rank records a part; rank 0 the samples, the last rank the loss."""

    def __init__(self, number: int, of: int = 2) -> None:
        super().__init__("torch")
        self.place = Rank(number, of)

    def rank(self) -> Rank:
        return self.place

    def run(self, run: Run) -> Account:
        (recorder,) = run.recorders.values()
        number = self.place.number
        recorder.add("parameter", f"w{number}", np.full(2, float(number)))
        recorder.next_step()
        if number:
            recorder.add("loss", "loss", np.asarray(1.0))
        recorder.next_step()
        transfer = Transfer(what="activation", source=number, target=1, bytes=8)
        parameters = {f"w{number}": [number]}
        layout = Layout(devices=["CPU", "CPU"], parameters=parameters, transfers=[] if number else [transfer])
        return Account(layout, {f"linear{number}": "linear"})


def together(sides: list[drive.Side], task: Job) -> None:
    """Every rank in a thread of its own."""
    threads = [threading.Thread(target=drive.record, args=(task, side)) for side in sides]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=20)
        assert not thread.is_alive()


def test_rank_0_puts_the_parts_together(tmp_path: Path) -> None:
    task = job(tmp_path, "simple_block/pipeline", 2, steps=1)
    together([Stages(0), Stages(1)], task)
    trace = Trace(Path(task.folder))
    facts = trace.manifest
    assert facts.replicas == [[0, 1]]
    assert sorted(facts.files) == [
        "low/rank-0/initial", "low/rank-1/initial", "low/rank-1/step-000000",
    ]  # fmt: skip
    assert facts.modules == {"linear0": "linear", "linear1": "linear"}
    assert facts.layout.parameters == {"w0": [0], "w1": [1]}
    assert facts.layout.transfers == [Transfer(what="activation", source=0, target=1, bytes=8)]
    assert list(trace.open("low", "initial")) == ["parameter/w0", "parameter/w1"]
    assert list(trace.open("low", "step-000000")) == ["loss/loss"]
    left = {path.name for path in Path(task.folder).iterdir()}
    assert left == {"manifest.json", "low"}  # the parts are gone


class Summing(Stages):
    """Each rank gives so many bytes into a collective: one more than twice the rank before."""

    def __init__(self, number: int, of: int, replicas: int) -> None:
        super().__init__(number, of)
        self.replicas = replicas

    def run(self, run: Run) -> Account:
        given = {"all_reduce": 2 ** (self.place.number + 1) - 1}
        account = super().run(run)
        return account._replace(layout=replace(account.layout, collectives=given, replicas=self.replicas))


@pytest.mark.parametrize(
    ("name", "replicas", "collectives"),
    [
        ("simple_block/hybrid", 2, 7 + 15),  # ranks 2 and 3 are the stages of the second replica
        ("linear_stack/pipeline", 1, 1 + 3 + 7 + 15),
        ("linear_stack/send_recv", 1, 1 + 3 + 7 + 15),
        ("simple_block/ddp", 4, 15),
        ("simple_block/tensor_parallel", 1, 15),
    ],
)
def test_the_collectives_of_a_replica_are_those_of_all_its_stages(
    name: str, replicas: int, collectives: int, tmp_path: Path
) -> None:
    task = job(tmp_path, name, 4, steps=1)
    together([Summing(number, 4, replicas) for number in range(4)], task)
    assert Trace(Path(task.folder)).manifest.layout.collectives == {"all_reduce": collectives}


class Parts(NumpySide):
    """Notes the inputs of each micro-batch as an activation, in the order of the batch."""

    def run(self, run: Run) -> Account:
        (recorder,) = run.recorders.values()
        recorder.next_step()
        for (micro_batches,) in run.dataset.steps():
            recorder.drew(np.concatenate([batch.indices for batch in micro_batches]))
            for batch in micro_batches:
                recorder.add("activation", "inputs", batch.inputs[0])
            recorder.next_step()
        (batch,) = run.dataset.evaluation()
        recorder.drew(batch.indices)
        recorder.add("activation", "inputs", batch.inputs[0])
        recorder.next_step()
        return Account(Layout(devices=["CPU"], parameters={}), {})


@pytest.mark.parametrize(("batch", "parts"), [(8, 1), (8, 4), (7, 3)])
def test_the_witness_turns_every_micro_batch_back(batch: int, parts: int, tmp_path: Path) -> None:
    trace = record_with(Parts("torch"), tmp_path, small_case(data={"batch": batch}, accumulate=parts, steps=2))
    for stem, count in (("step-000000", parts), ("step-000001", parts), ("step-000002", 1)):
        high, witness = trace.open("high", stem), trace.open("witness", stem)
        assert list(high) == list(witness)
        assert len(high) == 1 + count
        assert [key for key in high if not np.array_equal(high[key], witness[key])] == []


class Failing(Stages):
    def run(self, run: Run) -> Account:
        raise ZeroDivisionError


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_fails_leaves_nothing_of_an_earlier_recording(rank: int, tmp_path: Path) -> None:
    """What rank 1 left must not be taken for a part of this recording, nor the manifest for its end."""
    task = job(tmp_path, "simple_block/pipeline", 2, steps=1)
    if rank:
        drive.record(task, Stages(1))
    else:
        together([Stages(0), Stages(1)], task)
    before = {path.name for path in Path(task.folder).iterdir()}
    assert before == {"low", "rank-1.json" if rank else "manifest.json"}
    with pytest.raises(ZeroDivisionError):
        drive.record(task, Failing(rank))
    assert {path.name for path in Path(task.folder).iterdir()} == {"low"}


@pytest.mark.parametrize(
    ("name", "devices", "ranks", "expected"),
    [
        ("simple_block/single", 2, 1, [[0]]),
        ("simple_block/ddp", 3, 3, [[0], [1], [2]]),
        ("simple_block/ddp", 3, 1, [[0], [1], [2]]),
        ("simple_block/data_parallel", 2, 1, [[0], [1]]),
        ("simple_block/pipeline", 3, 3, [[0, 1, 2]]),
        ("simple_block/tensor_parallel", 2, 2, [[0, 1]]),
        ("simple_block/hybrid", 6, 6, [[0, 1], [2, 3], [4, 5]]),
        ("simple_block/hybrid", 6, 1, [[0], [1], [2]]),
    ],
)
def test_the_ranks_of_each_replica(name: str, devices: int, ranks: int, expected: list[list[int]]) -> None:
    assert drive.replicas(cases.resolve(name, {"devices": devices}), ranks) == expected


# By hand


@pytest.fixture
def by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., list[Path]]]:
    """`python -m torch_impl FLAGS`, with the numpy network for torch; returns the folders of the traces."""
    monkeypatch.setenv("PARITY_DEVICES", "")

    def run(*flags: str, side: drive.Side | None = None) -> list[Path]:
        args = ["--set", "data.source=synthetic", "--set", "optimizer.momentum=0.0", f"--out={tmp_path}/out", *flags]
        assert standalone.main("torch_impl", "torch", lambda: side or NumpySide("torch"), args) == 0
        return sorted(path.parent for path in (tmp_path / "out").rglob("manifest.json"))

    return run


def test_a_backend_by_hand_records_each_case_into_its_folder(by_hand: Any, tmp_path: Path) -> None:
    flags = "--case=simple_block/single", "--case=simple_block/single@schedule", "--steps=2", "--devices=cpu:3"
    folders = by_hand(*flags)
    assert folders == [tmp_path / "out/simple_block" / name / "torch" for name in ("single", "single@schedule")]
    trace = Trace(folders[0])
    assert (trace.manifest.runs, trace.case.steps, trace.case.devices) == (["low", "high", "witness"], 2, 3)
    assert os.environ["PARITY_DEVICES"] == "cpu:3"


@pytest.mark.parametrize(
    ("flags", "side", "said"),
    [
        (["--case=simple_block/ddp"], None, "simple_block/ddp on cpu:2 needs 2 processes of torch_impl, received 1"),
        (["--case=simple_block/single"], Stages(0), "needs 1 processes of torch_impl, received 2"),
        (["--case=simple_block/ddp", "--devices=cpu:3"], Stages(0), "on cpu:3 needs 3 processes"),
        (["--case=simple_block/hybrid"], None, "simple_block/hybrid: hybrid trains replicas of 2 stages each"),
        (["--case=simple_block/single", "--devices=tpu:2"], None, "expected auto, cpu:N or gpu:N"),
        (["--case=simple_blok/single"], None, "did you mean 'simple_block/single'"),
    ],
)
def test_a_case_that_these_processes_cannot_run_is_refused(
    flags: list[str], side: Any, said: str, by_hand: Any
) -> None:
    with pytest.raises(UsageError) as error:
        by_hand(*flags, side=side)
    assert said in str(error.value)
