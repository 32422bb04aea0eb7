"""The doctor as a user meets it: one clear line for every mistake, the right status, clean stdout. No framework runs.

What it finds in real programs: tests/test_doctor_programs.py.
"""

import contextlib
import json
import re
from pathlib import Path
from unittest import mock

import msgspec
import pytest
from doctor_evidence import finding
from processes import Ended, within

from parity import cli
from parity.core.clock import Time
from parity.core.errors import BackendError, MissingError
from parity.doctor import __main__ as command
from parity.doctor import rules
from parity.doctor.__main__ import ExaminedProgram
from parity.doctor.drive import Files
from parity.doctor.evidence import Collective, Evidence
from parity.doctor.finding import Finding
from parity.runtime.job import Answer, DoctorJob

ROOT = Path(__file__).parents[2]
PROGRAM = ["--torch=my_model:build", "--input=x=float32[8,16]"]
READ = "loss is read as a Python number, once a step."
FINDING = finding("warning", "sync.item", "train.py:7", READ, "total += loss.detach()")


def program(*args: str, found: list[Finding] | Exception | None = None) -> Ended:
    """`python -m parity.doctor` with these flags, where an examination finds this."""
    seen = [Evidence(side="torch", devices=["cuda:0"], physical=["CPU (virtual)"])]
    outcome = {"side_effect": found} if isinstance(found, Exception) else {"return_value": (found or [], seen)}
    with mock.patch.object(command, "examine", **outcome):
        return within(lambda: cli.end("parity.doctor", command.main), "parity.doctor", *args)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ([], "expected either --case, or your own program"),
        (["--case=simple_block/single", *PROGRAM], "expected either --case, or your own program"),
        (["--case=simple_block/single", "--step=my_model:step"], "leave them out with --case"),
        (["--case=simple_block/sinlge"], "did you mean 'simple_block/single'"),
        (["--case=two_linear/hybrid", "--devices=cpu:2"], "two_linear/hybrid on cpu:2: hybrid"),
        (["--torch=my_model:build"], "expected the inputs of the program"),
        (["--torch=my_model:build", "--input=x=float32"], "expected name=dtype[shape]"),
        ([*PROGRAM, "--keras=my_model:build", "--step=my_model:step"], "--step belongs to a single program"),
        ([*PROGRAM, "--devices=two"], "expected auto, cpu:N or gpu:N"),
        ([*PROGRAM, "--ranks=0"], "expected a whole number of 1 or more"),
        ([*PROGRAM, "--ranks=3", "--devices=cpu:2"], "--ranks=3 needs a device for each"),
        ([*PROGRAM, "--input=x=int64[8]<4"], "two inputs have the name 'x'"),
        ([*PROGRAM, "--patience=nan"], "expected a number of seconds above 0"),
        ([*PROGRAM, "--ignore=sync.itme"], "did you mean 'sync.item'"),
        ([*PROGRAM, "--json=/no/such/folder/found.json"], "cannot be written"),
        ([*PROGRAM, "--stpe=my_model:step"], "did you mean '--step'"),
        ([*PROGRAM, "--patience=never"], "expected a number of seconds above 0"),
    ],
)
def test_a_mistake_is_one_line_and_status_2(flags, said):
    ended = program(*flags)
    assert ended.status == 2, ended
    assert said in ended.err
    assert ended.err.count("\n") == 1
    assert ended.out == ""


@pytest.mark.parametrize(
    ("found", "flags", "status"),
    [
        ([], [], 0),
        ([FINDING], [], 1),
        ([FINDING], ["--ignore=sync.item"], 0),
        ([FINDING], ["--ignore=sync.print"], 1),
        ([msgspec.structs.replace(FINDING, severity="note")], [], 0),
        ([msgspec.structs.replace(FINDING, severity="error")], [], 1),
        (BackendError("torch: ValueError: no such width"), [], 3),
    ],
)
def test_the_status_says_what_was_found(found, flags, status):
    assert program(*PROGRAM, *flags, found=found).status == status


def test_what_is_missing_for_each_examination_is_said_once():
    ended = program("--case=simple_block/single", found=MissingError("torch is not installed"))
    assert ended == (3, "", "parity.doctor: torch is not installed\n")


def test_findings_are_printed_and_written(tmp_path):
    ended = program(*PROGRAM, f"--json={tmp_path / 'found.json'}", found=[FINDING])
    assert "sync.item" in ended.out
    assert "train.py:7" in ended.out
    assert "total += loss.detach()" in ended.out
    report = json.loads((tmp_path / "found.json").read_text())
    assert report["schema"] == 1
    (finding,) = report["findings"]
    assert finding.keys() >= {"id", "severity", "where", "source", "message", "fix"}
    assert finding["source"] == "train.py:7"


def test_findings_that_cannot_be_printed_are_written(tmp_path):
    with mock.patch.object(command.report, "show", side_effect=BrokenPipeError):
        ended = program(*PROGRAM, f"--json={tmp_path / 'found.json'}", found=[FINDING])
    assert ended.status == 141 and "Traceback" not in ended.err
    assert json.loads((tmp_path / "found.json").read_text())["findings"][0]["id"] == "sync.item"


def test_json_on_stdout_leaves_it_to_the_report():
    ended = program(*PROGRAM, "--json=-", found=[FINDING])
    assert json.loads(ended.out)["findings"][0]["id"] == "sync.item"
    assert "sync.item" in ended.err
    assert program(*PROGRAM, "--quiet", found=[FINDING]).out == ""


def test_the_list_of_findings_is_complete():
    listed = re.findall(r"^\| `([\w.]+)` \| .+ \|$", (ROOT / "docs" / "doctor.md").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(rules.IDS)


def test_help_lists_what_there_is():
    ended = program("--help")
    assert ended.status == 0
    assert "--step" in ended.out
    assert "fn(model, inputs)" in ended.out


def test_beside_the_times_of_a_gpu_stand_those_of_the_cpu(monkeypatch):
    def examined(patient: ExaminedProgram, patience: float) -> tuple[list, list[Evidence]]:
        device = "CPU" if patient.job.virtual else "NVIDIA H200"
        return [], [Evidence(side="torch", times=[Time(device=device, steps=5, step=0.01)])]

    monkeypatch.setattr(command, "_examine", examined)
    _, (seen,) = command.examine(ExaminedProgram("torch", "", DoctorJob(virtual=False)), 60.0)
    assert [time.device for time in seen.times] == ["NVIDIA H200", "CPU"]


@pytest.mark.parametrize(("shape", "told"), [([5, 4], True), ([8, 4], False)])
def test_ranks_that_crash_over_calls_that_do_not_meet_are_told_why(tmp_path, shape, told):
    """Gloo may end a process that is given another shape; a crash that nothing on file explains is the program's."""

    class Crashed:
        name = "torch"

        def do(self, job: DoctorJob) -> Answer:
            for rank, rows in enumerate(([8, 4], shape)):
                call = Collective(operation="all_reduce", shape=rows, dtype="float32", source="train.py:9")
                Files(Path(job.folder), rank).note(call)
            return Answer(status="error", message="torch rank 1: the process ended with status -6")

    job = DoctorJob(ranks=2, devices=2)
    with contextlib.nullcontext() if told else pytest.raises(BackendError, match="status -6"):
        (finding,), _ = command.examined(Crashed(), job, tmp_path / "seen")
        assert (finding.id, finding.source) == ("collective.shape", "train.py:9")
