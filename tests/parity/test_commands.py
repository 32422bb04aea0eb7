"""`parity COMMAND`: the commands behind one name, each as it is by itself."""

import os
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest
from processes import Ended, within
from slow import WAIT

from parity.__main__ import COMMANDS, main

ROOT = Path(__file__).parents[2]


def process(*arguments: str) -> Ended:
    command = [sys.executable, "-m", *arguments]
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "80"}
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=WAIT)
    return Ended(done.returncode, done.stdout, done.stderr)


def parity(*arguments: str) -> Ended:
    with mock.patch("parity.core.process.end_at_once"):
        return within(main, "parity", *arguments)


def test_the_commands_are_all_that_can_be_run() -> None:
    modules = [*(ROOT / "parity").glob("[a-z]*.py"), *(ROOT / "parity").glob("*/__main__.py")]
    ends = [path for path in modules if "cli.end(" in path.read_text()]
    runnable = {path.parent.name if path.stem == "__main__" else path.stem for path in ends}
    assert runnable - {"cli", "standalone"} == set(COMMANDS)


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_has_a_line_for_each_command(flag: str) -> None:
    ended = parity(flag)
    assert (ended.status, ended.err) == (0, "")
    lines = ended.out.splitlines()
    assert [line.split()[0] for line in lines if line.startswith("  ")] == list(COMMANDS)
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "parity: received no command, expected one of compare, record, certify, bisect, bench, advise, "),
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
    assert (ended.status, ended.out, ended.err.count("\n")) == (2, "", 1)
    assert ended.err.startswith(said)


@pytest.mark.parametrize(
    "arguments",
    [
        ["comprae"],
        pytest.param(["compare", "--stirct"], marks=pytest.mark.slow),
        pytest.param(["selftest", "--fault=nothing"], marks=pytest.mark.slow),
    ],
)
def test_it_is_the_same_in_a_process_of_its_own(arguments: list[str]) -> None:
    assert process("parity", *arguments) == parity(*arguments)


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_has_the_flags_that_it_has_by_itself(name: str) -> None:
    """And is called as it was started."""
    ended, alone = process("parity", name, "--help"), process(f"parity.{name}", "--help")
    assert ended.status == alone.status == 0
    assert ended.out.startswith(f"usage: parity {name} [-h]")
    assert ended.out == alone.out.replace(f"usage: parity.{name} ", f"usage: parity {name} ")
