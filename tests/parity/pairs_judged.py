"""In the place of two frameworks: verdicts by the pair's name, for tests of what is made of a verdict."""

import os
from pathlib import Path
from typing import Any

import pytest

from parity import asserts
from parity.core.errors import UsageError
from parity.pairs.file import PairFile
from parity.results import CaseResult, Cause, Check, Divergence, Suggestion, Verdict

LAYER_NORM = Cause(id="layer_norm.epsilon", where="encoder.norm1", torch=1e-5, keras=1e-3, evidence="tried")
ACCEPTED = '[[expect]]\ncause = "layer_norm.epsilon"\nwhere = "encoder.norm1"\n'
BITS = {"good": 24.31, "blurred": 12.0, "bad": 1.52, "stale": 30.0}
VERDICTS: dict[str, Verdict] = {
    "good": "match",
    "blurred": "subprecision",
    "bad": "diverged",
    "stale": "diverged",
    "crash": "error",
}


class FakeBackend:
    """Says in a file which process began it and ended it."""

    def __init__(self, name: str, python: str, folder: Path, kind: str) -> None:
        self.name = name
        self._say("began")

    def close(self) -> None:
        self._say("ended")

    def _say(self, what: str) -> None:
        if place := os.environ.get("PARITY_TEST_LOG"):
            with Path(place).open("a") as file:
                file.write(f"{what} {self.name} {os.getpid()}\n")


SEEN: list[PairFile] = []  # what was compared


def fake_compared(file: PairFile, backends: Any, folder: Path, varied: bool) -> CaseResult:
    """The verdict that the pair is named for."""
    assert [backend.name for backend in backends] == ["torch", "keras"]
    assert folder.is_dir()
    SEEN.append(file)
    name = file.case.name.removeprefix("pair/")
    if name == "unplaced":
        raise UsageError("pair/unplaced: weights without a counterpart:\n  torch a.weight\n  keras b/kernel")
    result = CaseResult(case=file.case.name, verdict=VERDICTS[name], seconds={"torch": 1.0, "keras": 1.5})
    if name == "stale":
        result.reason = "the expected difference gelu.form at * does not occur: take it out"
    if name == "crash":
        result.reason = "keras: ValueError: no such axis (model.py:7)"
    else:
        result.checks["activation"] = Check(compared=3, worst_bits=BITS[name], worst_name="encoder.norm1")
    if name == "bad":
        place = Divergence(step=0, kind="activation", name="encoder.norm1", replica=0, bits=1.52, reason="1.5 bits")
        result.first_divergence, result.causes = place, [LAYER_NORM]
        result.suggestions = [Suggestion(why="to accept it as it is", toml=ACCEPTED)]
    return result


def use(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing runs from now on."""
    SEEN.clear()
    monkeypatch.setattr(asserts, "compared", fake_compared)
    monkeypatch.setattr(asserts, "Backend", FakeBackend)
