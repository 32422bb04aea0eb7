"""What is run on a day: of the slow tests a part, of which four weeks have all; and what the time allows."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from slow import WAIT

TABLE = Path(__file__).parent / "soundness" / "users" / "test_users.py"


def collected(day: int, *flags: str, asked: str = str(TABLE)) -> set[str]:
    command = [sys.executable, "-m", "pytest", "-n0", "-q", "-m", "slow", "--collect-only", *flags, asked]
    variables = os.environ | {"PARITY_TESTS_DAY": str(day)}
    told = subprocess.run(command, env=variables, check=True, capture_output=True, text=True, timeout=WAIT).stdout
    return {line for line in told.splitlines() if "::" in line}


@pytest.mark.slow
def test_four_weeks_have_every_row():
    days = [collected(day) for day in range(28)]
    whole = collected(0, "--whole")
    assert set.union(*days) == whole and sum(map(len, days)) == len(whole)
    assert min(map(len, days)) > len(whole) / 60


@pytest.mark.slow
def test_a_test_that_is_asked_for_by_name_runs_on_any_day():
    row = min(collected(0, "--whole"))
    assert all(collected(day, asked=row) == {row} for day in range(2))


def test_what_is_not_begun_in_time_is_skipped_and_told():
    command = [sys.executable, "-m", "pytest", "-n0", "-q", "-rs", "--within=0", "tests/parity/test_plain.py"]
    variables = {name: value for name, value in os.environ.items() if name != "PARITY_TESTS_BEGUN"}
    done = subprocess.run(command, env=variables, cwd=TABLE.parents[3], capture_output=True, text=True, timeout=WAIT)
    assert done.returncode == 0 and "passed" not in done.stdout
    assert "not begun within 0 s" in done.stdout
