"""A clean built-in case has no findings, by any strategy, on either side; a profile can be read."""

import itertools
import json
from typing import Any

import pytest

from parity.config import cases
from parity.doctor.__main__ import examined
from parity.runtime.backend import Backend
from parity.runtime.job import DoctorJob

# Those of one kind of processes stand together: a backend starts others for another number of ranks or devices.
CASES = [
    "simple_block/single",
    "two_linear/round_robin",
    "simple_block/data_parallel",
    "residual_block/branch_parallel",
    "simple_block/ddp@accumulate",
    "simple_block/all_reduce",
    "two_linear/send_recv",
    "two_linear/pipeline@1f1b",
    "simple_block/tensor_parallel",
]
SAMPLE = [(0, "simple_block/single"), (0, "two_linear/send_recv"), (1, "simple_block/single")]


def examination(name: str, **fields: Any) -> DoctorJob:
    (case,) = cases.select([name], devices=2)
    return DoctorJob(case=case, devices=1 if case.strategy == "single" else 2, **fields)


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, 1], ids=["torch", "keras"])
def test_a_profile_is_what_perfetto_reads(number: int, backends: list[Backend], tmp_path):
    (tmp_path / "profile").mkdir()
    job = examination("simple_block/single", profile=str(tmp_path / "profile"))
    _, (seen,) = examined(backends[number], job, tmp_path / "seen")
    assert seen.times
    with open(seen.profile) as file:
        events = json.load(file)["traceEvents"]
    assert sum(event.get("ph") == "X" for event in events) > 100


@pytest.mark.parametrize(
    ("number", "name"),
    [
        pytest.param(number, name, marks=[] if (number, name) in SAMPLE else pytest.mark.slow)
        for number, name in [*itertools.product((0, 1), CASES), (0, "simple_block/fsdp")]
    ],
    ids=lambda value: ("torch", "keras")[value] if isinstance(value, int) else value,
)
def test_a_clean_case_has_no_findings(name: str, number: int, backends: list[Backend], tmp_path):
    found, seen = examined(backends[number], examination(name, timed=False), tmp_path / "seen")
    assert found == []
    assert all(len(evidence.steps) == 2 for evidence in seen)
    assert all(any(step.calls for step in evidence.steps) for evidence in seen)
