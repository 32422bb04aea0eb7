"""How far apart a tensor of two traces is, and whether it was a match before."""

from pathlib import Path
from typing import Any

import numpy as np
from synthetic import Array, by_hand

from parity.pairs.accepting.evidence import Evidence
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
