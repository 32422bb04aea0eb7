"""Ranks that wait for each other: which call does not meet, what the other rank does, where each one is."""

from pathlib import Path

from doctor_evidence import evidence, failed, step

import parity
from parity.core.ownership import Homes
from parity.doctor.evidence import Collective, Waiting
from parity.doctor.finding import Finding
from parity.doctor.rules import findings, hanging

TORCH = "/usr/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
REDUCE = Collective(operation="all_reduce", shape=[8], dtype="float32", source="train.py:7")
SEND = Collective(operation="send", shape=[4, 8], dtype="float32", source="train.py:3", peer=1)
RECEIVE = Collective(operation="recv", shape=[4, 8], dtype="float32", source="train.py:5", peer=0)


def waits(rank: int, line: int = 7, ended: bool = False) -> Waiting:
    """In a call of torch.distributed that line makes."""
    user = f'File "{Path.cwd() / "train.py"}", line {line} in step'
    return Waiting(rank=rank, ended=ended, stack=[f'File "{TORCH}", line 2000 in wait', user])


def left(rank: int, copy: Path | None = None) -> Waiting:
    """Where ranks wait for those that are still in the step; a rank's process may have another copy of the project."""
    homes = Homes([f"{copy}/parity"], [], [], []) if copy else None
    file = f"{copy or Path(parity.__file__).parents[1]}/parity/doctor/drive.py"
    return Waiting(rank=rank, ended=True, stack=[f'File "{file}", line 9 in meet'], homes=homes)


def found(*logs: list[Collective], waiting: list[Waiting]) -> Finding:
    (finding,) = hanging(list(logs), waiting)
    assert finding.severity == "error" and finding.where == ""
    return finding


def altered(call: Collective, **fields: object) -> Collective:
    return Collective(**{**{name: getattr(call, name) for name in call.__struct_fields__}, **fields})


def test_a_failure_explains_who_is_waited_for_and_a_mismatch_a_lost_connection() -> None:
    lost = evidence(steps=[step(failure=failed("Connection closed by peer [127.0.0.1]:1", ""))])
    broken = evidence(steps=[step(failure=failed("shapes cannot be multiplied", ""))])
    logs = [REDUCE], []
    waiting = [waits(0), left(1)]
    assert [f.id for f in findings([lost, evidence()], logs, waiting)] == ["collective.left"]
    assert [f.id for f in findings([broken, evidence()], logs, waiting)] == ["step.raised"]
    assert [f.id for f in findings([lost, evidence()])] == ["step.raised"]


def test_a_receive_of_another_shape() -> None:
    finding = found([SEND], [altered(RECEIVE, shape=[4, 9])], waiting=[])
    assert (finding.id, finding.source) == ("collective.shape", "train.py:5")
    assert "torch.empty([4, 8], dtype=torch.float32)" in finding.fix


def test_a_rank_that_a_lost_connection_ended_was_waiting_too() -> None:
    finding = found([altered(RECEIVE, peer=1)], [RECEIVE], waiting=[waits(0, 5, ended=True), waits(1, 5)])
    assert finding.id == "collective.order"


def test_a_stack_without_a_line_of_the_user_s_is_shown_as_it_is() -> None:
    finding = found([], waiting=[Waiting(rank=0, ended=False, stack=[f'File "{TORCH}", line 2000 in wait'])])
    assert finding.source == f"{TORCH}:2000"
