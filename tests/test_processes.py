"""A rank that raises, dies or hangs ends its case alone, and leaves no process and no file behind."""

from pathlib import Path

import pytest

from parity.config import cases
from parity.runtime.backend import Backend, running
from parity.runtime.job import Job

PATIENCE = 12.0  # seconds; the processes need about four to start

# fault, what is said of rank 1
FAILURES = [
    ("rank.raises", "RuntimeError"),
    ("rank.exits", "the process ended with status 1"),
    ("rank.hangs", f"no answer within {PATIENCE:.0f} s"),
]


def job(folder: Path, fault: str = "") -> Job:
    return Job(case=cases.resolve("simple_block/ddp", {"steps": 2}), runs=["low"], folder=str(folder), fault=fault)


def processes(mark: str) -> list[int]:
    """The processes whose environment holds `mark`."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdecimal() and mark in (entry / "environ").read_text(errors="replace"):
                found.append(int(entry.name))
        except OSError:  # it has ended, or is another user's
            continue
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "said"), FAILURES)
def test_a_rank_that_fails_ends_its_case_alone(tmp_path, fault, said):
    backend = Backend("torch", "", tmp_path, patience=PATIENCE)
    with running([backend]):
        failed = backend.do(job(tmp_path / "failed", fault))
        assert failed.status == "error"
        assert said in failed.message
        assert "rank 1" in failed.message
        assert len(processes(str(tmp_path))) == 1  # which forks the others
        assert not (tmp_path / "failed" / "manifest.json").exists()
        assert backend.do(job(tmp_path / "next")).status == "done"
        assert len(processes(str(tmp_path))) == 3
    assert processes(str(tmp_path)) == []


@pytest.mark.slow
def test_a_worker_of_tensorflow_that_dies_ends_its_case(tmp_path):
    backend = Backend("keras", "", tmp_path)
    case = cases.resolve("simple_block/ddp@workers", {"steps": 2})
    with running([backend]):
        failed = backend.do(Job(case=case, runs=["low"], folder=str(tmp_path / "failed"), fault="rank.exits"))
    assert failed.status == "error"
    assert "keras rank 1: the process ended with status 1" in failed.message
    assert processes(str(tmp_path)) == []
