"""Ranks that wait for each other: which call does not meet, what the other rank does, where each one is."""

from pathlib import Path

import pytest
from doctor_evidence import evidence, failed, step

import parity
from parity.core.ownership import Homes
from parity.doctor.evidence import Collective, Waiting
from parity.doctor.finding import Finding
from parity.doctor.rules import findings, hanging

TORCH = "/usr/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
REDUCE = Collective(operation="all_reduce", shape=[8], dtype="float32", source="train.py:7")
SHARE = Collective(operation="broadcast", shape=[], dtype="float32", source="train.py:9")
SEND = Collective(operation="send", shape=[4, 8], dtype="float32", source="train.py:3", peer=1)
RECEIVE = Collective(operation="recv", shape=[4, 8], dtype="float32", source="train.py:5", peer=0)


def waits(rank: int, line: int = 7, ended: bool = False) -> Waiting:
    """In a call of torch.distributed that line makes."""
    user = f'File "{Path.cwd() / "train.py"}", line {line} in step'
    return Waiting(rank=rank, ended=ended, stack=[f'File "{TORCH}", line 2000 in wait', user])


def left(rank: int, copy: Path | None = None) -> Waiting:
    """Where ranks wait for those that are still in the step; a rank's process may have another copy of the project."""
    homes = Homes([f"{copy}/parity"], [], [], []) if copy else None
    file = f"{copy or Path(parity.__file__).parents[1]}/parity/doctor/files.py"
    return Waiting(rank=rank, ended=True, stack=[f'File "{file}", line 9 in meet'], homes=homes)


def found(*logs: list[Collective], waiting: list[Waiting]) -> Finding:
    (finding,) = hanging(list(logs), waiting)
    assert finding.severity == "error" and finding.where == ""
    return finding


def altered(call: Collective, **fields: object) -> Collective:
    return Collective(**{**{name: getattr(call, name) for name in call.__struct_fields__}, **fields})


def test_another_order() -> None:
    finding = found([SHARE, REDUCE], [REDUCE, SHARE], waiting=[waits(0, 9), waits(1, 7)])
    assert (finding.id, finding.source) == ("collective.order", "train.py:7")
    assert (
        "rank 1 calls all_reduce of float32[8] at train.py:7, rank 0 calls broadcast of float32[] at train.py:9"
        in finding.message
    )
    assert finding.fix.startswith("dist.broadcast(")


def test_the_one_that_differs_from_most_is_named() -> None:
    finding = found([REDUCE], [REDUCE], [SHARE], waiting=[waits(rank) for rank in range(3)])
    assert finding.source == "train.py:9"
    assert "rank 2 calls broadcast" in finding.message


@pytest.mark.parametrize("other", [{"shape": [5]}, {"dtype": "float64"}])
def test_another_shape_or_type(other: dict) -> None:
    """Also where nothing hangs."""
    for waiting in ([waits(0), waits(1)], []):
        finding = found([REDUCE], [altered(REDUCE, **other, source="train.py:8")], waiting=waiting)
        assert (finding.id, finding.source) == ("collective.shape", "train.py:8")


@pytest.mark.parametrize("waiting", [left(1), left(1, Path("/another/checkout"))])
def test_a_rank_that_left(waiting: Waiting) -> None:
    finding = found([REDUCE, REDUCE], [REDUCE], waiting=[waits(0), waiting])
    assert (finding.id, finding.source) == ("collective.left", "train.py:7")
    assert "rank 1 does not reach: it has ended after 1 call." in finding.message


def test_a_rank_that_is_held_up_elsewhere() -> None:
    finding = found([REDUCE], [], waiting=[waits(0), waits(1, line=33)])
    assert (finding.id, finding.source) == ("step.hangs", "train.py:33")
    assert "rank 0 waits in all_reduce" in finding.message.lower()


def test_a_failure_explains_who_is_waited_for_and_a_mismatch_a_lost_connection() -> None:
    lost = evidence(steps=[step(failure=failed("Connection closed by peer [127.0.0.1]:1", ""))])
    broken = evidence(steps=[step(failure=failed("shapes cannot be multiplied", ""))])
    logs = [REDUCE], []
    waiting = [waits(0), left(1)]
    assert [f.id for f in findings([lost, evidence()], logs, waiting)] == ["collective.left"]
    assert [f.id for f in findings([broken, evidence()], logs, waiting)] == ["step.raised"]
    assert [f.id for f in findings([lost, evidence()])] == ["step.raised"]


def test_both_receive() -> None:
    mine = altered(RECEIVE, peer=1)
    finding = found([mine], [RECEIVE], waiting=[waits(0, 5), waits(1, 5)])
    assert (finding.id, finding.source) == ("collective.order", "train.py:5")
    assert "from rank" in finding.message and "it is in recv" in finding.message


def test_a_send_that_nobody_receives() -> None:
    finding = found([SEND], [], waiting=[waits(0, 3), left(1)])
    assert (finding.id, finding.source, finding.fix) == (
        "collective.left", "train.py:3", "dist.recv(buffer, src=0)  # on rank 1"
    )  # fmt: skip
    assert "it has ended its step" in finding.message


def test_a_receive_of_another_shape() -> None:
    finding = found([SEND], [altered(RECEIVE, shape=[4, 9])], waiting=[])
    assert (finding.id, finding.source) == ("collective.shape", "train.py:5")
    assert "torch.empty([4, 8], dtype=torch.float32)" in finding.fix


def test_a_rank_that_a_lost_connection_ended_was_waiting_too() -> None:
    finding = found([altered(RECEIVE, peer=1)], [RECEIVE], waiting=[waits(0, 5, ended=True), waits(1, 5)])
    assert finding.id == "collective.order"


def test_a_step_that_waits_for_something_else() -> None:
    finding = found([], waiting=[waits(0, line=17)])
    assert (finding.id, finding.source) == ("step.hangs", "train.py:17")
    assert finding.message.endswith("\nrank 0:\n  train.py:17 in step")


def test_a_stack_without_a_line_of_the_user_s_is_shown_as_it_is() -> None:
    finding = found([], waiting=[Waiting(rank=0, ended=False, stack=[f'File "{TORCH}", line 2000 in wait'])])
    assert finding.source == f"{TORCH}:2000"


@pytest.mark.parametrize(
    "logs",
    [
        [[REDUCE, SHARE], [REDUCE, SHARE]],
        [[SEND, REDUCE], [RECEIVE, REDUCE]],
        [[SEND], [altered(RECEIVE, peer=None)]],
        [[altered(REDUCE, group=[0])], [altered(SHARE, group=[1])]],
        [[REDUCE]],
        [[], []],
    ],
)
def test_what_meets_is_no_finding(logs: list[list[Collective]]) -> None:
    """Nor where ranks were asked where they are and none is waiting."""
    assert hanging(logs, []) == []
    assert hanging(logs, [Waiting(rank=rank, ended=False, stack=[]) for rank in range(len(logs))]) == []
