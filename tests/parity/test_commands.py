"""`parity COMMAND`: the commands behind one name, each as it is by itself."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from slow import WAIT

from parity.__main__ import COMMANDS

ROOT = Path(__file__).parents[2]


def parity(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "parity", *arguments]
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "80"}
    return subprocess.run(command, env=variables, capture_output=True, text=True, timeout=WAIT)


def test_the_commands_are_all_that_can_be_run() -> None:
    modules = [*(ROOT / "parity").glob("[a-z]*.py"), *(ROOT / "parity").glob("*/__main__.py")]
    ends = [path for path in modules if "cli.end(" in path.read_text()]
    runnable = {path.parent.name if path.stem == "__main__" else path.stem for path in ends}
    assert runnable - {"cli", "standalone"} == set(COMMANDS)


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_has_a_line_for_each_command(flag: str) -> None:
    ended = parity(flag)
    assert (ended.returncode, ended.stderr) == (0, "")
    lines = ended.stdout.splitlines()
    assert [line.split()[0] for line in lines if line.startswith("  ")] == list(COMMANDS)
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "parity: received no command, expected one of compare, record, certify, bench, advise, doctor, "),
        (["comprae"], "parity: received 'comprae' (did you mean 'compare'?), expected one of compare, "),
        (["--strict"], "parity: received '--strict', expected one of "),
        (["compare", "--stirct"], "parity compare: unrecognized arguments: --stirct (did you mean '--strict'?); "),
        (["record", "--case=simple_block/single"], "parity record: the following arguments are required: --backend"),
        (["bench"], "parity bench: expected what to time: --case=GLOB or --pair=FILE.toml; "),
        (["doctor"], "parity doctor: expected either --case, or your own program"),
        (
            ["advise", "--case=two_linear/single", "--devices=8xH20"],
            "parity advise: --devices=8xH20: device 'H20' is not in the table (did you mean 'H200'?)",
        ),
        (["selftest", "--fault=nothing", "--clean=0"], "parity selftest: no fault matches 'nothing'"),
    ],
)
def test_a_mistake_is_one_line_and_status_2(arguments: list[str], said: str) -> None:
    ended = parity(*arguments)
    assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (2, "", 1)
    assert ended.stderr.startswith(said)


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_has_the_flags_that_it_has_by_itself(name: str) -> None:
    """And is called as it was started."""
    ended = parity(name, "--help")
    alone = subprocess.run(
        [sys.executable, "-m", f"parity.{name}", "--help"],
        env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "80"},
        capture_output=True,
        text=True,
        timeout=WAIT,
    )
    assert ended.returncode == alone.returncode == 0
    assert ended.stdout.startswith(f"usage: parity {name} [-h]")
    assert ended.stdout == alone.stdout.replace(f"usage: parity.{name} ", f"usage: parity {name} ")
