"""Golden traces, by the numpy network in the place of both frameworks: what changed is told, and nothing is recorded
that nobody asked for. And two trainings of one framework that are spread over devices in different ways.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from report_samples import print_report
from synthetic import Fault, NumpySide, broken, by_hand, honest

from parity import compare, golden
from parity.core.errors import BackendError, TraceError
from parity.pairs import file as files
from parity.pairs.prepare import place
from parity.results import CaseResult, Report
from parity.runtime import drive, runner
from parity.runtime.job import Answer, Job
from parity.runtime.runner import Runner
from parity.subjects import run as pair

SMALL = ["--case=simple_block/single", "--steps=2", "--set", "data.batch=4", "--devices=cpu:1", "--quiet"]
SMALL += ["--set", "data.source=synthetic", "--set", "optimizer.momentum=0"]
NAME = "simple_block/single"


class Side(NumpySide):
    """A version of a framework."""

    version = "1.0"

    def versions(self) -> dict[str, str]:
        return {self.NAME: self.version}


class Numpy:
    """A backend without a process: numpy, of a version, with a fault. `fails`: what its jobs end with."""

    kind = "cpu"

    def __init__(self, name: str, folder: Path, fault: Fault = honest, version: str = "1.0", fails: Any = None) -> None:
        self.name, self.folder = name, folder
        self.side = Side(name, fault)
        self.side.version = version
        self.fails = fails
        self.jobs: list[Job] = []
        self.closed = False

    def do(self, job: Job) -> Answer:
        self.jobs.append(job)
        if isinstance(self.fails, BaseException):
            raise self.fails
        if self.fails:
            return Answer(status="error", message=self.fails)
        drive.record(job, self.side)
        return Answer(status="done", seconds=1.0)

    def serves(self, job: Job) -> bool:
        return True

    def close(self) -> None:
        self.closed = True


Program = Callable[..., int]


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Program:
    """`program(*flags, torch={...}, keras={...})`: parity.compare by numpy backends; its exit status."""

    def run(*flags: str, **sides: dict[str, Any]) -> int:
        def backend(name: str, python: str, folder: Path, kind: str, patience: float) -> Numpy:
            return Numpy(name, folder, **sides.get(name, {}))

        monkeypatch.setattr(runner, "Backend", backend)
        return compare.main([*SMALL, f"--golden={tmp_path / 'golden'}", *flags])

    return run


def reported(tmp_path: Path) -> dict[str, Any]:
    report: dict[str, Any] = msgspec.json.decode((tmp_path / "report").read_bytes())
    return report


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_same_as_before(program: Program, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert program("--update-golden", f"--json={tmp_path / 'report'}") == 0
    assert reported(tmp_path)["cases"] == []
    assert capsys.readouterr().out.count(f"{NAME}  {tmp_path}/golden/{NAME}/") == 2
    before = content(tmp_path / "golden")
    assert {name.split("/")[2] for name in before} == {"torch", "keras"}  # and nothing is left beside them
    assert program(f"--json={tmp_path / 'report'}") == 0
    report = reported(tmp_path)
    assert [case["case"] for case in report["cases"]] == [f"{NAME} (torch)", f"{NAME} (keras)"]
    assert report["summary"]["match"] == 2
    assert report["environment"].keys() == {"torch golden", "torch", "keras golden", "keras"}
    assert [case["changed"] for case in report["cases"]] == [{}, {}]
    assert content(tmp_path / "golden") == before


def test_a_side_that_computes_something_else_now(program: Program, tmp_path: Path) -> None:
    assert program("--update-golden") == 0
    assert program(f"--json={tmp_path / 'report'}", keras={"fault": broken}) == 1
    torch, keras = reported(tmp_path)["cases"]
    assert (torch["verdict"], keras["verdict"]) == ("match", "diverged")
    assert keras["first_divergence"]["sides"].keys() == {"reference", "candidate"}
    assert program("--update-golden", keras={"fault": broken}) == 0
    assert program(keras={"fault": broken}) == 0
    assert program() == 1


def test_what_changed_is_said(program: Program, tmp_path: Path) -> None:
    program("--update-golden")
    assert program(f"--json={tmp_path / 'report'}", torch={"version": "1.1"}) == 0
    torch, keras = reported(tmp_path)["cases"]
    assert (torch["changed"], keras["changed"]) == ({"torch": ["1.0", "1.1"]}, {})
    report = Report(cases=[CaseResult(case="a", verdict="match", changed=torch["changed"])])
    with (tmp_path / "text").open("w") as file:
        print_report(report, file)
    assert "changed since the golden traces of 1 case: torch 1.0 → 1.1" in (tmp_path / "text").read_text()


def test_a_trace_that_is_missing_is_not_recorded_in_silence(program: Program, tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=f"no golden trace of {NAME}; .* --update-golden --case={NAME}"):
        program()
    assert not (tmp_path / "golden").exists()
    program("--update-golden")
    with pytest.raises(TraceError, match=r"no golden trace of simple_block/ddp; .* --case=simple_block/ddp --devices"):
        program("--case=simple_block/ddp")


@pytest.mark.parametrize("fails", ["crashed", KeyboardInterrupt(), BackendError("hung")])
def test_a_recording_that_does_not_finish_leaves_the_old_one(fails: Any, program: Program, tmp_path: Path) -> None:
    program("--update-golden")
    before = content(tmp_path / "golden")
    with pytest.raises((BackendError, KeyboardInterrupt)):
        program("--update-golden", torch={"fails": fails, "fault": broken}, keras={"fails": fails})
    assert content(tmp_path / "golden") == before
    assert [path.name for path in (tmp_path / "golden").iterdir()] == ["simple_block"]


def test_a_move_that_fails_puts_the_old_one_back(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "a").touch()
    with pytest.raises(FileNotFoundError):
        golden._move(tmp_path / "not there", tmp_path / "old", tmp_path / "aside")
    assert (tmp_path / "old" / "a").exists()


def test_a_golden_trace_of_other_settings_is_told_before_anything_runs(program: Program) -> None:
    program("--update-golden")
    never = {"fails": AssertionError("ran")}
    with pytest.raises(TraceError, match="with other settings: seed is 0 against 1 now"):
        program("--seed=1", torch=never, keras=never)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--update-golden"], "--update-golden needs --golden"),
        (["--golden=g", "--keep=k"], "cannot be used together"),
        (["--golden=g", "one", "two"], "cannot be used together"),
    ],
)
def test_flags_that_do_not_go_together(
    flags: list[str], said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        compare.main(flags)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


# Pairs


class Survey:
    """In the place of parity.pairs.compare.recorded: the survey that it found or made, and a trace."""

    def __init__(self) -> None:
        self.begun: list[tuple[str, str]] = []
        self.failing: list[str] = []

    def __call__(self, file: files.PairFile, backend: Numpy, folder: Path, **_: Any) -> Answer:
        survey = Path(place(folder, "torch")) / "weights"
        if backend.name == "keras":
            time.sleep(0.2)  # it comes last, however long it takes
        if backend.name in self.failing:
            return Answer(status="error", message="crashed")
        if backend.name == "torch":
            survey.parent.mkdir(parents=True)
            survey.write_text(f"number {len(self.begun)}")
        self.begun.append((backend.name, survey.read_text()))
        written(file, folder / backend.name, backend.name)
        return Answer(status="done")


def written(file: files.PairFile, folder: Path, backend: str) -> None:
    tensors = {run: {"step-000000": {"loss/loss": np.asarray(1.0)}} for run in ("low", "high")}
    by_hand(folder, tensors, backend, file.case)


class Pairs(Numpy):
    """torch's job against a golden trace: told where the survey is."""

    def do(self, job: Job) -> Answer:
        self.jobs.append(job)
        assert job.pair
        assert (Path(job.pair.survey) / "weights").read_text() == "number 0"
        written(files.PairFile(job.case, [], []), Path(job.folder), self.name)
        return Answer(status="done")


def test_a_pair_begins_with_the_golden_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    surveys = Survey()
    monkeypatch.setattr(pair, "recorded", surveys)
    file = files.from_flags("a:b", "c:d", ["x=float32[2,3]"], name="small")
    backends: list[Any] = [Pairs("torch", tmp_path), Pairs("keras", tmp_path)]
    small, runner = pair.UserPair(file), Runner(backends)
    assert golden.update(tmp_path, [small], runner) == []
    assert (tmp_path / "pair/small/torch/survey/weights").exists()
    found = list(golden.compared(tmp_path, [small], runner, tmp_path / "scratch", Report()))
    assert [(each.case, each.verdict) for each in found] == [
        ("pair/small (torch)", "match"), ("pair/small (keras)", "match"),
    ]  # fmt: skip
    assert surveys.begun == [("torch", "number 0"), ("keras", "number 0"), ("keras", "number 0")]
    assert len(backends[0].jobs) == 1
    surveys.failing = ["torch"]
    assert len(golden.update(tmp_path, [small], runner)) == 2
    assert (tmp_path / "pair/small/torch/survey/weights").exists()
    (tmp_path / "pair/small/torch/survey").rename(tmp_path / "gone")
    lost = list(golden.compared(tmp_path, [small], runner, tmp_path / "scratch", Report()))
    assert [(each.verdict, each.error) for each in lost] == [("error", "usage")] * 2
    assert "starts from the weights in it" in lost[0].reason and "torch failed" in lost[1].reason
