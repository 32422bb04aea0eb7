"""stdout and stderr that are closed, full, unread, or of few characters: one line, a status that is told, no traceback.

Each test runs the program in a process of its own, as a shell would start it.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from processes import Ended
from slow import WAIT, sampled
from synthetic import by_hand, whole

from parity.trace.layout import Layout

ROOT = Path(__file__).parents[2]
FULL = Path("/dev/full")


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two traces that diverge; a device has a name that few encodings have."""
    folder = tmp_path_factory.mktemp("traces")
    for side, value in (("torch", 1.0), ("keras", 2.0)):
        content = {"step-000000": {"activation/ämodule": np.full(2, value)}}
        runs = whole({"high": content, "low": content})
        by_hand(folder / side, runs, side, layout=Layout(devices=["Ä→"], parameters={}))
    return f"{folder / 'torch'} {folder / 'keras'}"


def shell(command: str, **environment: str) -> Ended:
    """What a shell makes of a command; `parity` stands for the program."""
    line = command.replace("parity", f"{sys.executable} -m parity.compare", 1)
    variables = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    done = subprocess.run(["bash", "-c", line], capture_output=True, env=variables, timeout=WAIT)
    return Ended(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))


@pytest.mark.parametrize("encoding", sampled(["ascii", "latin-1", "utf-8"], "ascii"))
def test_an_encoding_of_few_characters(encoding: str, traces: str, tmp_path: Path) -> None:
    ended = shell(f"parity {traces} --json={tmp_path / 'report'}", PYTHONIOENCODING=encoding)
    assert ended.status == 1 and ended.err == ""
    assert ("≈ different" if encoding == "utf-8" else "~ different") in ended.out
    assert json.loads((tmp_path / "report").read_text())["cases"][0]["first_divergence"]["name"] == "ämodule"


def test_the_json_is_utf_8_whatever_the_terminal_is(traces: str) -> None:
    ended = shell(f"parity {traces} --json=- 2>/dev/null", PYTHONIOENCODING="ascii")
    assert json.loads(ended.out)["cases"][0]["first_divergence"]["name"] == "ämodule"


def test_a_name_that_utf_8_cannot_hold(traces: str, tmp_path: Path) -> None:
    report = tmp_path / "report"
    ended = shell(f"parity {traces} $'{tmp_path}/\\xff' --json={report}")
    assert ended.status == 2 and "Traceback" not in ended.err
    missing = shell(f"parity $'{tmp_path}/\\xff' nowhere --json={report}")
    assert missing.status == 2 and missing.err.count("\n") == 1
    assert "holds no trace" in json.loads(report.read_text())["error"]


@pytest.mark.parametrize("where", sampled([">/dev/full", ">&-"], ">/dev/full"))
def test_a_stdout_that_takes_nothing(where: str, traces: str, tmp_path: Path) -> None:
    ended = shell(f"parity {traces} --json={tmp_path / 'report'} {where}")
    assert ended.status == 2
    assert ended.err.count("\n") == 1 and "parity.compare: the output cannot be written: " in ended.err
    assert json.loads((tmp_path / "report").read_text())["summary"]["diverged"] == 1


@pytest.mark.parametrize("where", sampled([">/dev/full", ">&-"], ">/dev/full"))
def test_a_json_for_a_stdout_that_takes_nothing_leaves_the_table(where: str, traces: str) -> None:
    ended = shell(f"parity {traces} --json=- {where}")
    assert ended.status == 2
    assert "1 case: 1 diverged" in ended.err and "the output cannot be written" in ended.err
    assert "Traceback" not in ended.err


@pytest.mark.parametrize("where", sampled([">/dev/full", ">&-"], ">/dev/full"))
def test_nothing_is_printed_on_what_is_not_needed(where: str, traces: str, tmp_path: Path) -> None:
    assert shell(f"parity {traces} --quiet --json={tmp_path / 'report'} {where}") == (1, "", "")


@pytest.mark.parametrize("where", sampled(["2>/dev/full", "2>&-"], "2>/dev/full"))
def test_a_stderr_that_takes_nothing(where: str, traces: str) -> None:
    table = shell(f"parity {traces} {where}")
    assert (table.status, table.err) == (1, "") and "1 case: 1 diverged" in table.out
    mistake = shell(f"parity nowhere nowhere {where}")
    assert mistake == (2, "", "")
    report = shell(f"parity {traces} --json=- {where}")
    assert json.loads(report.out)["summary"]["diverged"] == 1  # the table, for stderr, is lost alone
    assert report.status in (1, 2)


def test_a_full_device_for_the_json_leaves_the_table(traces: str) -> None:
    ended = shell(f"parity {traces} --json={FULL}")
    assert ended.status == 2
    assert "1 case: 1 diverged" in ended.out
    assert ended.err.count("\n") == 1 and "--json=/dev/full: cannot be written" in ended.err


@pytest.mark.parametrize("unbuffered", sampled(["", "1"], ""))
def test_a_reader_that_leaves_early(unbuffered: str, traces: str, tmp_path: Path) -> None:
    command = f"parity {traces} --json={tmp_path / 'report'} | true; exit ${{PIPESTATUS[0]}}"
    ended = shell(command, PYTHONUNBUFFERED=unbuffered)  # has left, most likely, before the program has started
    assert ended.status in (1, 141) and "Traceback" not in ended.err
    closed = "parity.compare: the reader of the output closed it before all was written\n"
    assert ended.err == ("" if ended.status == 1 else closed)
    assert json.loads((tmp_path / "report").read_text())["summary"]["diverged"] == 1


@pytest.mark.parametrize(
    ("flag", "where"), [("--help", ">/dev/full"), pytest.param("--list", ">&-", marks=pytest.mark.slow)]
)
def test_help_that_nobody_can_read(flag: str, where: str) -> None:
    ended = shell(f"parity {flag} {where}")
    assert "Traceback" not in ended.err and "Exception ignored" not in ended.err
    assert ended.status in (0, 2)


def test_no_empty_report_is_left_where_nothing_was_compared(tmp_path: Path) -> None:
    """Not even where flags are refused."""
    report = tmp_path / "report"
    assert shell(f"parity nowhere --json={report}").status == 2
    assert not report.exists()
    assert shell(f"parity nowhere nowhere --json={report}").status == 2
    assert json.loads(report.read_text())["cases"] == []
