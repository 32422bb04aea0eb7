"""Of large tables every day has a third: three days have every row, each once."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TABLE = Path(__file__).parent / "soundness" / "users" / "test_users.py"


def collected(day: int, *flags: str) -> set[str]:
    command = [sys.executable, "-m", "pytest", "-n0", "-q", "-m", "slow", "--collect-only", *flags, str(TABLE)]
    variables = os.environ | {"PARITY_TESTS_DAY": str(day)}
    told = subprocess.run(command, env=variables, check=True, capture_output=True, text=True, timeout=120).stdout
    return {line for line in told.splitlines() if "::" in line}


@pytest.mark.slow
def test_three_days_have_every_row():
    days = [collected(day) for day in range(3)]
    whole = collected(0, "--whole")
    assert set.union(*days) == whole and sum(map(len, days)) == len(whole)
    assert min(map(len, days)) > len(whole) / 4
