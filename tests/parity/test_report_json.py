"""Reports: the exit status that their verdicts have, and the JSON of the contract."""

import itertools
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from verdicts import SIGNS, one, spoilt

from parity.core.arrays import Array
from parity.report.output import write_json
from parity.results import CaseResult, Divergence, Finding, Report


def report(*verdicts: str, finding: bool = False) -> Report:
    made = Report()
    remark = Finding(id="precision.noise", side="keras", where="x", message="...")
    for verdict in verdicts:
        made.add(CaseResult(case="a/b", verdict=verdict, findings=[remark] if finding else []))  # type: ignore[arg-type]
    return made


def expected_status(verdicts: tuple[str, ...], strict: bool, finding: bool) -> int:
    """The contract: 3 wins over 1; 1 for what diverged; 2 where nothing was compared, skipped cases alone included."""
    if "error" in verdicts:
        return 3
    if {"diverged", "inconclusive"} & set(verdicts) or (
        strict and ("subprecision" in verdicts or (finding and verdicts))
    ):
        return 1
    return 0 if {"match", "subprecision"} & set(verdicts) else 2


VERDICTS = ("match", "subprecision", "inconclusive", "diverged", "error", "skipped")


@pytest.mark.parametrize("finding", [False, True])
@pytest.mark.parametrize("strict", [False, True])
def test_the_status_of_every_combination(strict: bool, finding: bool) -> None:
    for count in range(len(VERDICTS) + 1):
        for verdicts in itertools.combinations(VERDICTS, count):
            made = report(*verdicts, finding=finding)
            assert made.status(strict) == expected_status(verdicts, strict, finding), verdicts
            assert made.summary == ({verdict: int(verdict in verdicts) for verdict in VERDICTS} if verdicts else {})


def loaded(report: Report, folder: Path) -> dict[str, Any]:
    """The report's JSON, read by a parser that refuses NaN and infinity."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"the report holds {constant}")

    write_json(report, str(folder / "report.json"))
    found: dict[str, Any] = json.loads((folder / "report.json").read_text(), parse_constant=refuse)
    return found


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
    (case,) = loaded(made, tmp_path)["cases"]
    assert case["first_divergence"]["name"] == "layer"


def test_a_divergence_at_no_place_is_written_as_null(tmp_path: Path) -> None:
    made = Report()
    place = Divergence(step=0, kind="loss", name="loss", replica=0, bits=float("-inf"), reason="")
    made.add(CaseResult(case="a/b", verdict="diverged", first_divergence=place, seconds={"torch": float("nan")}))
    assert loaded(made, tmp_path)["cases"][0]["first_divergence"]["bits"] is None
