"""A case that cannot be run is an error of its own: the others go on, the JSON is whole, the status tells the kind."""

import itertools
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from slow import WAIT
from stand_ins import PRELUDE
from synthetic import by_hand, record, small_case, whole

from parity.config import cases
from parity.core.errors import BackendError, UsageError
from parity.diagnose.diagnosis import Examined
from parity.pairs import judge as pair_judge
from parity.report import terminal
from parity.report.output import Console
from parity.results import CaseResult, ErrorKind, Report, Verdict, error_kind, failed
from parity.runtime.job import Answer
from parity.trace.mapping import Mapping, UnmappedError, Unplaced

ROOT = Path(__file__).parents[2]
PAIR = '[pair]\nname = "{name}"\ntorch = "a:b"\nkeras = "c:d"\n[inputs.x]\nshape = [2]\n{more}\n'
Interpreter = Callable[[str, str], str]


@pytest.fixture
def interpreter(tmp_path: Path) -> Interpreter:
    """Makes a program that answers every job alike: `interpreter(status, message)`."""

    def make(status: str, message: str) -> str:
        path = tmp_path / f"python-{status}"
        answers = f"say('ready')\nfor line in sys.stdin:\n    say({status!r}, {message!r})\n"
        path.write_text(f"#!{sys.executable}\n{PRELUDE}{answers}")
        path.chmod(0o755)
        return str(path)

    return make


def ended(program: str, *flags: object) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", f"parity.{program}", *map(str, flags)]
    return subprocess.run(command, capture_output=True, text=True, timeout=WAIT, cwd=ROOT)


def report_of(path: Path) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(path.read_text())
    return report


def test_a_case_that_a_side_refuses_stops_no_other(interpreter: Interpreter, tmp_path: Path) -> None:
    refusing = interpreter("usage", "no such file")
    flags = ["--case=simple_block/single", "--case=two_linear/single", "--case=simple_block/round_robin"]
    flags += [f"--torch-python={refusing}", f"--keras-python={refusing}", f"--json={tmp_path / 'report'}"]
    done = ended("compare", *flags)
    report = report_of(tmp_path / "report")
    assert (done.returncode, report["summary"]["error"], report["error"]) == (2, 3, "")
    assert {(case["error"], case["reason"].partition("\n")[0]) for case in report["cases"]} == {
        ("usage", "no such file")
    }


def test_a_backend_that_fails_wins_over_a_mistake(interpreter: Interpreter, tmp_path: Path) -> None:
    flags = ["--case=simple_block/single", f"--torch-python={interpreter('usage', 'no such file')}"]
    flags += [f"--keras-python={interpreter('error', 'crashed')}", f"--json={tmp_path / 'report'}"]
    assert ended("compare", *flags).returncode == 3
    (case,) = report_of(tmp_path / "report")["cases"]
    assert case["error"] == "backend" and "no such file" in case["reason"] and "crashed" in case["reason"]


@pytest.mark.slow
def test_pairs_that_are_wrong_in_their_file_or_refused(interpreter: Interpreter, tmp_path: Path) -> None:
    (tmp_path / "wrong.toml").write_text(PAIR.format(name="odd", more="lr = 1"))
    (tmp_path / "name.toml").write_text('[pair]\nname = 3\ntorch = "a:b"\n')
    (tmp_path / "good.toml").write_bytes(b"\xef\xbb\xbf" + PAIR.format(name="good", more="").encode())
    refusing = interpreter("usage", "there is no module 'a'")
    flags = [f"--pair={tmp_path / name}.toml" for name in ("wrong", "name", "good")]
    pythons = [f"--torch-python={refusing}", f"--keras-python={refusing}"]
    done = ended("compare", *flags, *pythons, f"--json={tmp_path / 'report'}")
    found = {case["case"]: (case["error"], case["reason"]) for case in report_of(tmp_path / "report")["cases"]}
    assert done.returncode == 2
    assert list(found) == ["pair/odd", "pair/name", "pair/good"] and {kind for kind, _ in found.values()} == {"usage"}
    assert "unknown field `lr`" in found["pair/odd"][1] and "no module 'a'" in found["pair/good"][1]
    recording = ended("record", "--backend=torch", f"--out={tmp_path / 'out'}", f"--torch-python={refusing}", *flags)
    assert recording.returncode == 2
    assert "3 of 3 cases failed: pair/odd, pair/name, pair/good" in recording.stderr


@pytest.mark.slow
def test_a_file_that_cannot_be_read_ends_all_at_once(tmp_path: Path) -> None:
    (tmp_path / "broken.toml").write_text("[pair")
    for name in ("broken.toml", "none.toml"):
        done = ended("compare", f"--pair={tmp_path / name}", f"--json={tmp_path / 'report'}")
        assert done.returncode == 2 and done.stderr.count("\n") == 1 and done.stdout == ""
        assert name in report_of(tmp_path / "report")["error"]


def test_of_recorded_traces_a_damaged_one_stops_no_other(tmp_path: Path) -> None:
    content = {run: {"step-000000": {"loss/loss": np.asarray(1.0)}} for run in ("low", "high")}
    for side in ("torch", "keras"):
        record(tmp_path / side / "one", side, small_case())
        case = cases.resolve("two_linear/single")
        by_hand(tmp_path / side / "two", whole(content, case), side, case=case)
    shutil.rmtree(tmp_path / "keras" / "one" / "high")
    done = ended("compare", tmp_path / "torch", tmp_path / "keras", f"--json={tmp_path / 'report'}")
    found = {case["case"]: (case["verdict"], case["error"]) for case in report_of(tmp_path / "report")["cases"]}
    assert found == {"simple_block/single": ("error", "usage"), "two_linear/single": ("match", "")}
    assert done.returncode == 2


KINDS: list[ErrorKind] = ["", "usage", "backend"]


@pytest.mark.parametrize("errors", [errors for n in (1, 2) for errors in itertools.product(KINDS, repeat=n)])
@pytest.mark.parametrize("other", ["match", "diverged", "skipped"])
def test_the_status_is_that_of_the_worst_error(errors: tuple[ErrorKind, ...], other: Verdict) -> None:
    """3 wins over 2, and either over 1; an error of no known kind counts as a backend's."""
    report = Report()
    for kind in errors:
        report.add(CaseResult(case="a", verdict="error", error=kind))
    report.add(CaseResult(case="b", verdict=other))
    assert report.status(strict=False) == (2 if set(errors) == {"usage"} else 3)


def test_the_kind_of_an_error() -> None:
    done, usage, error = (Answer(status=status) for status in ("done", "usage", "error"))
    assert error_kind([done]) == "" and error_kind([done, usage]) == "usage" and error_kind([usage, error]) == "backend"
    assert failed("a", UsageError("a: why")) == CaseResult(case="a", verdict="error", error="usage", reason="why")
    assert failed("a", BackendError("why")).error == "backend"


def test_a_mapping_that_fails_is_printed(tmp_path: Path) -> None:
    """What was found, and what has no counterpart."""
    unplaced = Unplaced(side="torch", name="head.weight", shape=(2, 3))
    result = failed(
        "pair/a", UnmappedError("pair/a: weights without a counterpart", Mapping(entries=[], unplaced=[unplaced]))
    )
    with (tmp_path / "text").open("w") as file:
        terminal.show_pair(result, Console(file, 140))
    text = (tmp_path / "text").read_text()
    assert "weights of pair/a:\ntorch: head.weight [2, 3] (not found)" in text
    assert "to copy into the pair file" not in text  # nothing was found that could be
    assert "weights without a counterpart" in terminal.text(result)


def test_a_mistake_in_the_search_for_causes_costs_no_verdict() -> None:
    class Mistaken:
        def name_causes(self, examination: Examined) -> None:
            raise TypeError("unhashable type: 'list'")

    examination = Examined(CaseResult(case="pair/a", verdict="diverged"), [])
    pair_judge._ask(Mistaken(), examination)  # type: ignore[arg-type]
    (cause,) = examination.result.causes
    assert (cause.id, cause.where) == ("internal_error", "(model)")
    assert cause.evidence.startswith("TypeError in ") and "mistake in parity" in cause.evidence
