"""How far apart a tensor of two traces is, and whether it was a match before."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from synthetic import Array, by_hand

from parity.pairs.accepting.evidence import Evidence, Size
from parity.verdict.traces import Unequal

STEMS = ("initial", "step-000000", "step-000001")
WEIGHT, OUT = "parameter/head.weight", "activation/head"
LATER = Unequal(1, 0, "activation", "head")


def tensors(**changed: Array) -> dict[str, Any]:
    """A weight that moves by 0.5 in each step, and an output; `changed`: by kind and number of the step."""
    files: dict[str, dict[str, Array]] = {}
    for number, stem in enumerate(STEMS):
        files[stem] = {WEIGHT: changed.get(f"parameter{number}", np.array([1.0, 2.0]) + number / 2)}
        if number:
            files[stem] = {OUT: changed.get(f"activation{number}", np.array([4.0, -8.0])), **files[stem]}
    low = {stem: {key: array.astype(np.float32) for key, array in file.items()} for stem, file in files.items()}
    return {"high": files, "low": low}


def evidence(folder: Path, *unequal: Unequal, **changed: Array) -> Evidence:
    reference = by_hand(folder / "torch", tensors())
    return Evidence(reference, by_hand(folder / "keras", tensors(**changed), "keras"), list(unequal))


def test_the_size_of_a_difference(tmp_path: Path) -> None:
    size = evidence(tmp_path, activation2=np.array([4.0, -7.5])).size(LATER)
    assert size == Size(0.5, pytest.approx(20.0, abs=1.0), 8.0) and size.relative == 1 / 16
    assert evidence(tmp_path / "equal").size(LATER) == Size(0.0, 0.0, 8.0)


def test_the_size_of_an_update_is_that_of_what_moved(tmp_path: Path) -> None:
    update = Unequal(1, 0, "update", "head.weight")
    moved = {"parameter1": np.array([1.75, 2.5]), "parameter2": np.array([2.5, 3.0])}
    size = evidence(tmp_path, **moved).size(update)
    assert size and size.difference == 0.25  # 0.75 instead of 0.5, while the parameter is 0.5 off


@pytest.mark.parametrize("other", [np.zeros((2, 2)), np.array([4.0, np.nan]), np.array([4, -8])])
def test_what_no_number_tells_has_no_size(other: Array, tmp_path: Path) -> None:
    assert evidence(tmp_path, activation2=other).size(LATER) is None


def test_a_tensor_matched_before_if_a_step_before_has_it_and_it_was_none_of_those_that_do_not(tmp_path: Path) -> None:
    earlier = LATER._replace(step=0)
    assert evidence(tmp_path / "a", LATER).matched_before(LATER)
    assert not evidence(tmp_path / "b", LATER, earlier).matched_before(LATER)
    assert not evidence(tmp_path / "c", earlier).matched_before(earlier)  # the first step has none before it


def test_zeros_that_matched_before_say_nothing(tmp_path: Path) -> None:
    nothing = {"activation1": np.zeros(2)}
    assert evidence(tmp_path / "a", LATER).moved_alike_before(LATER)
    folder = tmp_path / "b"
    reference = by_hand(folder / "torch", tensors(**nothing))
    both = Evidence(reference, by_hand(folder / "keras", tensors(**nothing), "keras"), [LATER])
    assert both.matched_before(LATER) and not both.moved_alike_before(LATER)
    assert not evidence(tmp_path / "c", LATER, LATER._replace(step=0)).moved_alike_before(LATER)


def test_the_names_are_those_of_the_reference(tmp_path: Path) -> None:
    assert evidence(tmp_path).names == ["head", "head.weight"]
