"""Of what is marked slow every day has a part: four weeks have all, each test once."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TABLE = Path(__file__).parent / "soundness" / "users" / "test_users.py"


def collected(day: int, *flags: str, asked: str = str(TABLE)) -> set[str]:
    command = [sys.executable, "-m", "pytest", "-n0", "-q", "-m", "slow", "--collect-only", *flags, asked]
    variables = os.environ | {"PARITY_TESTS_DAY": str(day)}
    told = subprocess.run(command, env=variables, check=True, capture_output=True, text=True, timeout=120).stdout
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
