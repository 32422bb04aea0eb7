"""Where two traces part first, and which traces cannot be compared at all."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from synthetic import by_hand, small_case
from verdicts import ACTIVATION, SIGNS, STEP, judged, one, tensors

from parity.core.errors import TraceError
from parity.verdict.traces import compare

ORDER = ("activation/z", "activation/m", "loss/loss", "gradient/b", "gradient/a", "parameter/k")


@pytest.mark.parametrize(("sooner", "later"), list(itertools.combinations(ORDER, 2)))
def test_the_first_divergence_is_the_first_in_execution_order(sooner: str, later: str, tmp_path: Path) -> None:
    reference = dict.fromkeys(ORDER, SIGNS)
    candidate = {**reference, sooner: SIGNS * 1.001, later: SIGNS * 3}
    result = judged(tmp_path, tensors(reference), tensors(candidate))
    first = result.first_divergence
    assert first and f"{first.kind}/{first.name}" == sooner
    assert [kind for kind, check in result.checks.items() if check.verdict == "diverged"] == list(
        dict.fromkeys(key.partition("/")[0] for key in (sooner, later))
    )


def test_an_extra_tensor_of_the_candidate_stands_behind_its_predecessor(tmp_path: Path) -> None:
    reference = {"activation/a": SIGNS, "activation/c": SIGNS}
    candidate = {"activation/a": SIGNS, "activation/b": SIGNS, "activation/c": SIGNS * 2}
    first = judged(tmp_path, tensors(reference), tensors(candidate)).first_divergence
    assert first and first.name == "b"


def test_the_initial_state_comes_before_step_0_and_step_9_before_step_10(tmp_path: Path) -> None:
    for earlier, later, step in (("initial", STEP, None), ("step-000009", "step-000010", 9)):
        sides = []
        for value in (SIGNS, SIGNS * 2):
            runs = (tensors({"parameter/w": value}, stem) for stem in (later, earlier))
            merged: dict[str, Any] = {"high": {}, "low": {}}
            for run, stems in itertools.chain.from_iterable(each.items() for each in runs):
                merged[run].update(stems)
            sides.append(merged)
        first = judged(tmp_path / earlier, *sides).first_divergence
        assert first and first.step == step


def test_the_place_shows_what_stood_there(tmp_path: Path) -> None:
    reference = np.arange(12.0).reshape(3, 4)
    candidate = reference.copy()
    candidate[1, 2] += 100
    candidate[2, 3] += 1
    first = one(tmp_path, reference, candidate).first_divergence
    assert first and first.index == [1, 2]
    assert (first.sides["torch"].value, first.sides["keras"].value) == (6.0, 106.0)
    torch = first.sides["torch"]
    assert (torch.shape, torch.dtype, torch.smallest, torch.largest, torch.mean) == ([3, 4], "float64", 0, 11, 5.5)


def test_traces_of_other_cases_or_other_data_cannot_be_compared(tmp_path: Path) -> None:
    content = tensors({ACTIVATION: SIGNS})
    trace = by_hand(tmp_path / "a", content)
    other = by_hand(tmp_path / "b", content, case=small_case(seed=1))
    with pytest.raises(TraceError, match="different cases: seed is 0 against 1"):
        compare(trace, other)
    other = by_hand(tmp_path / "c", content, data={"source": "synthetic", "sha256": "1"})
    with pytest.raises(TraceError, match="different data: sha256 is '0' against '1'"):
        compare(trace, other)


def test_traces_with_other_steps_cannot_be_compared(tmp_path: Path) -> None:
    content = {ACTIVATION: SIGNS}
    few, more = tensors(content), tensors(content)
    for run in more.values():
        run["step-000001"] = run[STEP]
    for sides in ((few, more), (more, few)):
        with pytest.raises(TraceError):
            judged(tmp_path / str(len(sides[0]["high"])), *sides)


@pytest.mark.parametrize("content", [{}, {"low": {STEP: {ACTIVATION: SIGNS.astype(np.float32)}}}])
def test_traces_with_nothing_to_compare_are_no_match(content: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="hold no tensor that could be compared"):
        judged(tmp_path, content, content)
