"""Groups of ranks: which are started and kept, and what each is told. Stand-ins play the ranks."""

import json
import socket
from pathlib import Path

import pytest
from stand_ins import ANSWERS, RANKS, Stage, job, only_rank_1

from parity.runtime.backend import running
from parity.runtime.environment import rank_variables

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


@pytest.mark.parametrize(("name", "shares"), [("torch", ["yes", "yes"]), ("keras", ["yes", ""])])
def test_tensorflow_s_workers_import_for_themselves(name: str, shares: list[str], stage: Stage) -> None:
    """They are forked before the import: their heartbeats stop in a fork of what has imported TensorFlow."""
    told = stage.folder / "shares"
    code = f"print(os.environ['PARITY_SHARES'], os.getppid(), file=open({str(told)!r}, 'a'), sep=',')\n"
    with running([stage.backend(code + ANSWERS, name=name)]) as (backend,):
        for case in ("simple_block/single", "simple_block/ddp@workers" if name == "keras" else "simple_block/ddp"):
            assert backend.do(job(stage.folder, case)).status == "done"
    single, *ranks = (line.split(",") for line in told.read_text().splitlines())
    assert [single[0], *{rank[0] for rank in ranks}] == shares
    assert (single[1] == ranks[0][1]) == (shares[0] == shares[1])


# The variables


@pytest.mark.parametrize("backend", ["torch", "keras"])
def test_a_single_process_is_told_nothing(backend: str, tmp_path: Path) -> None:
    assert rank_variables(backend, 1, tmp_path) == [{}]


@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_torch_s_ranks(ranks: int, tmp_path: Path) -> None:
    (tmp_path / "rendezvous").write_text("of ranks that are gone")
    told = rank_variables("torch", ranks, tmp_path)
    assert [(each["RANK"], each["LOCAL_RANK"]) for each in told] == [(str(rank),) * 2 for rank in range(ranks)]
    assert {each["WORLD_SIZE"] for each in told} == {str(ranks)}
    assert {each["PARITY_RENDEZVOUS"] for each in told} == {(tmp_path / "rendezvous").as_uri()}
    assert not (tmp_path / "rendezvous").exists()


@pytest.mark.parametrize("ranks", [2, 8])
def test_tensorflow_s_workers(ranks: int, tmp_path: Path) -> None:
    told = [json.loads(each["TF_CONFIG"]) for each in rank_variables("keras", ranks, tmp_path)]
    assert [each["task"] for each in told] == [{"type": "worker", "index": rank} for rank in range(ranks)]
    (workers,) = {tuple(each["cluster"]["worker"]) for each in told}
    assert len(set(workers)) == ranks
    for worker in workers:
        host, _, port = worker.partition(":")
        socket.create_server((host, int(port))).close()  # free, and on this machine alone
        assert host == "127.0.0.1"
