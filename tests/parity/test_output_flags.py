"""The files of --html, --junit and --sarif, as a user of the commands meets them; no framework is started."""

import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import pytest
from processes import Ended, within
from report_samples import compared
from synthetic import record
from test_html_page import Parsed, embedded
from verdicts import times

from parity import cli, compare
from parity.core.process import Stopped
from parity.doctor import __main__ as doctor
from parity.results import CaseResult
from parity.selftest import __main__ as selftest

PROGRAMS = {
    "compare": (compare.main, ["--case=two_linear/single"]),
    "doctor": (doctor.main, ["--torch=a:build", "--input=x=float32[2,3]"]),
    "selftest": (selftest.main, ["--clean=0", "--fault=keras:adam.epsilon"]),
}
WORK = {"compare": "parity.compare._collect", "doctor": "parity.doctor.__main__._programs",
        "selftest": "parity.selftest.__main__._collect"}  # fmt: skip


def ended(main: Callable[..., int], *argv: object) -> Ended:
    return within(lambda: cli.end("parity", main), "parity", *argv)


@pytest.fixture
def traces(tmp_path: Path) -> list[Path]:
    """The folders of two traces that differ in a gradient."""
    record(tmp_path / "torch", "torch")
    record(tmp_path / "keras", "keras", backwards=True, fault=times(1.5, "gradient", "linear1.bias"))
    return [tmp_path / "torch", tmp_path / "keras"]


def test_a_comparison_writes_all_that_was_asked_for(
    traces: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    files = {name: tmp_path / f"report.{name}" for name in ("html", "junit", "sarif", "json")}
    status, out, err = ended(compare.main, *traces, *(f"--{name}={file}" for name, file in files.items()))
    assert (status, err) == (1, "")
    assert "compared: 100% of the parameters, 100% of the activations; " in out
    page = files["html"].read_text()
    assert "do not compute the same in the one case compared." in Parsed(page).text
    assert embedded(page) == json.loads(files["json"].read_text())
    case = json.loads(files["json"].read_text())["cases"][0]
    assert case["details"]["tensors"] and case["extent"]["parameters"]["percent"] == 100
    assert 'failures="1"' in files["junit"].read_text() and '"version": "2.1.0"' in files["sarif"].read_text()
    assert (tmp_path / "summary.md").read_text().startswith("### PyTorch and Keras do not compute the same")


def test_without_the_page_its_details_are_not_in_the_json(traces: list[Path], tmp_path: Path) -> None:
    ended(compare.main, *traces, f"--json={tmp_path / 'report.json'}")
    (case,) = json.loads((tmp_path / "report.json").read_text())["cases"]
    assert case["details"] is None and case["checks"]["layout"]["sides"] == {} and case["extent"]


def test_the_layouts_are_printed_only_where_that_was_asked_for(traces: list[Path], tmp_path: Path) -> None:
    said = {
        flags: ended(compare.main, *traces, *flags)[1]
        for flags in ((f"--html={tmp_path / 'report.html'}",), ("--layout",))
    }
    assert ["single: device layouts" in text for text in said.values()] == [False, True]


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_file_that_cannot_be_written_ends_before_the_work(name: str, tmp_path: Path) -> None:
    main, argv = PROGRAMS[name]
    path = tmp_path / "none" / "report.html"
    with mock.patch(WORK[name], side_effect=AssertionError("the work began")) as work:
        status, out, err = ended(main, *argv, f"--html={path}")
    assert not work.called
    assert (status, out) == (2, "")
    assert err == f"parity: --html={path}: cannot be written: [Errno 2] No such file or directory: '{path}'\n"


@pytest.mark.parametrize("error", [KeyboardInterrupt(), Stopped(2), RuntimeError("broken")], ids=repr)
def test_what_is_finished_is_written_where_a_comparison_is_stopped(error: BaseException, tmp_path: Path) -> None:
    def results(*_: object) -> Iterator[CaseResult]:
        yield compared(tmp_path)
        raise error

    file = tmp_path / "report.html"
    argv = [f"--html={file}", f"--junit={tmp_path / 'report.xml'}", "--quiet"]
    with mock.patch("parity.compare._results", results), pytest.raises(type(error)):
        compare.main(argv)
    text = Parsed(file.read_text()).text
    assert "The run ended early: " in text and "simple_block/single ✓ match" in text
    assert re.search('tests="2" failures="0" errors="1"', (tmp_path / "report.xml").read_text())


def test_what_is_finished_is_written_where_the_self_test_is_stopped(tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    argv = [*PROGRAMS["selftest"][1], f"--html={file}"]
    with mock.patch(WORK["selftest"], side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        selftest.main(argv)
    assert "The run ended early: KeyboardInterrupt" in Parsed(file.read_text()).text


def test_what_is_found_is_written_where_the_doctor_is_stopped(tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    with (
        mock.patch("parity.doctor.__main__.examine", side_effect=KeyboardInterrupt),
        pytest.raises(KeyboardInterrupt),
    ):
        doctor.main([*PROGRAMS["doctor"][1], "--devices=cpu:1", f"--html={file}"])
    assert "The program could not be examined." in Parsed(file.read_text()).text


def test_the_command_is_quoted_for_a_shell(traces: list[Path], tmp_path: Path) -> None:
    file = tmp_path / "a report.html"
    ended(compare.main, *traces, f"--html={file}")
    assert f"python -m parity.compare {traces[0]} {traces[1]} '--html={file}'" in Parsed(file.read_text()).text
    assert os.listdir(tmp_path).count("a report.html") == 1
