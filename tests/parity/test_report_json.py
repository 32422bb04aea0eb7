"""The JSON of a report, whatever numbers were compared."""

import json
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from verdicts import SIGNS, one, spoilt

from parity.core.arrays import Array
from parity.report.output import write_json
from parity.results import Report

INFINITE: dict[str, Callable[[], tuple[Array, Array]]] = {
    "nan": lambda: (SIGNS, spoilt(3)),
    "all nan": lambda: (SIGNS, np.full(64, np.nan)),
    "inf": lambda: (spoilt(3, value=np.inf), spoilt(3, value=-np.inf)),
    "overflow": lambda: (SIGNS * 1.7e308, SIGNS * -1.7e308),
    "underflow": lambda: (np.full(2, 5e-324), np.full(2, 1e-323)),
}


@pytest.mark.parametrize("what", INFINITE)
def test_the_json_has_no_nan_and_no_infinity(what: str, tmp_path: Path) -> None:
    high = INFINITE[what]()
    warnings.simplefilter("ignore")  # numpy's, of the overflow that is meant
    lows = dict(zip(("reference_low", "candidate_low"), high, strict=True))
    result = one(tmp_path, *high, **lows)
    assert result.verdict == "diverged"
    made = Report()
    made.add(result)
    write_json(made, str(tmp_path / "report.json"))
    (case,) = json.loads((tmp_path / "report.json").read_text(), parse_constant=pytest.fail)["cases"]
    assert case["first_divergence"]["name"] == "layer"
