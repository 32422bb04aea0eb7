"""The truths of the table, by running both sides of each row with loops of their own (truth.py)."""

import subprocess
import sys
from pathlib import Path

import pytest
from rows import HERE, Row
from table import ROWS
from truth import PRECISIONS, Apart, apart, read

from parity.runtime.environment import environment

# Of two elements in float64: rounding is below the first, float32 sees nothing below the second.
ROUNDING, SEEN = 1e-7, 1e-6
SEEN_LOW = 1e-4  # of what is wrong at float32 alone, relative to the largest value
SHOWN = [row for row in ROWS if not row.why]


@pytest.fixture(scope="module")
def ran(request, tmp_path_factory) -> Path:
    """Both sides, one after the other: the weights are torch's."""
    folder = tmp_path_factory.mktemp("truth")
    variables = environment(folder) | {"PYTHONPATH": f"{HERE.parents[1]}:{HERE}"}
    asked = [
        item.callspec.params["row"].name for item in request.session.items if item.name.startswith("test_a_truth[")
    ]
    for side in ("torch", "keras"):
        command = [sys.executable, str(HERE / "truth.py"), side, str(folder), *asked]
        subprocess.run(command, env=variables, check=True, capture_output=True, timeout=1800)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("row", [pytest.param(row, id=row.name) for row in SHOWN])
def test_a_truth(row: Row, ran: Path):
    high, low = (apart(*read(ran, row.name, precision)) for precision in PRECISIONS)
    assert not high.error, high
    assert is_true(row, high, low), (high, low)


def is_true(row: Row, high: Apart, low: Apart) -> bool:
    if row.truth == "subprecision":
        return 1e-13 < high.element < 10 * SEEN
    if row.truth in ("differs", "told"):
        return high.element > SEEN or low.kind > SEEN_LOW
    return row.truth != "same" or high.kind < ROUNDING


@pytest.mark.parametrize(("truth", "distance"), [("same", 1e-3), ("differs", 1e-12), ("subprecision", 1e-3)])
def test_a_wrong_truth_is_seen(truth, distance):
    row = next(row for row in ROWS if row.truth == truth)
    far = Apart(distance, distance, "output0 0")
    assert not is_true(row, far, far)
