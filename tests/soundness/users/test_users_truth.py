"""The truths of the users' table, by running the two models as their users do (users_truth.py)."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from users_rows import HERE, Row
from users_table import ROWS
from users_truth import Apart, apart

from parity.runtime.environment import environment

ROUNDING, SEEN = 1e-9, 1e-6


@pytest.fixture(scope="module")
def ran(request, tmp_path_factory) -> Path:
    """Both sides, one after the other: the weights are torch's."""
    folder = tmp_path_factory.mktemp("users_truth")
    variables = environment(folder) | {"PYTHONPATH": f"{HERE.parents[2]}:{HERE}"}
    asked = [
        item.callspec.params["row"].name for item in request.session.items if item.name.startswith("test_a_truth[")
    ]
    for side in ("torch", "keras"):
        command = [sys.executable, str(HERE / "users_truth.py"), side, str(folder), *asked]
        subprocess.run(command, env=variables, check=True, capture_output=True, timeout=1800)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("row", [pytest.param(row, id=row.name) for row in ROWS])
def test_a_truth(row: Row, ran: Path):
    sides = [dict(np.load(ran / f"{side}-{row.name}.npz")) for side in ("torch", "keras")]
    distance = apart(*sides)
    assert not distance.error, distance
    assert is_true(row, distance), distance


def is_true(row: Row, distance: Apart) -> bool:
    if row.before and distance.before > ROUNDING:
        return False
    return distance.after < ROUNDING if row.truth == "same" else distance.after > SEEN


@pytest.mark.parametrize(
    ("truth", "before", "after"),
    [("same", 0.0, 1e-8), ("same", 1e-3, 0.0), ("same", 0.0, np.inf), ("differs", 0.0, 1e-8), ("differs", 1e-3, 1e-3)],
)
def test_a_wrong_truth_is_seen(truth, before, after):
    row = next(row for row in ROWS if row.truth == truth and row.before)
    assert not is_true(row, Apart(before, after, "output0"))


@pytest.mark.parametrize(
    ("key", "reference", "candidate", "distance"),
    [
        ("after", [1.0, 2.0], [1.0, 2.0], 0.0),
        ("after", [1.0, 2.0], [1.0, 2.5], 0.2),
        ("after", [1.0, np.nan], [1.0, 2.0], np.inf),
        ("after", [1.0], [1.0, 1.0], np.inf),
        ("equal 0.0 1.0", True, False, 1.0),
        ("share", 0.5, 0.45, 0.0),
        ("share", 0.5, 0.8, 1.0),
        ("moments", [0.0, 1.0, 3.0], [0.1, 1.1, 2.7], 0.0),
        ("moments", [0.0, 1.0, 3.0], [0.0, 6.3, 3.0], 1.0),
        ("moments", [0.0, 1.0, 3.0], [0.0, 1.0, 1.0], 1.0),
    ],
)
def test_a_distance(key, reference, candidate, distance):
    assert apart({key: np.array(reference)}, {key: np.array(candidate)}).after == distance


def test_an_error_is_no_truth():
    assert apart({"error": np.array("no")}, {"after": np.zeros(1)}).error == "no"
