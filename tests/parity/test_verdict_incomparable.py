"""The verdict where values cannot be compared one by one: tensors of one side, other shapes and dtypes, NaN."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from synthetic import by_hand
from verdicts import ACTIVATION, SIGNS, STEP, at, judged, one, spoilt, tensors

from parity.core.arrays import Array
from parity.verdict.traces import compare


@pytest.mark.parametrize("run", ["high", "low"])
@pytest.mark.parametrize("side", [0, 1])
def test_a_tensor_of_one_side_only_is_diverged(run: str, side: int, tmp_path: Path) -> None:
    sides = [tensors({ACTIVATION: SIGNS, "activation/more": SIGNS}) for _ in range(2)]
    assert judged(tmp_path, *sides).verdict == "match"
    runs = ("high", "low") if run == "high" else ("low",)
    for each in runs:
        del sides[side][each][STEP]["activation/more"]
    result = judged(tmp_path, *sides)
    assert result.verdict == "diverged"
    assert result.reason == f"only {('keras', 'torch')[side]} has this tensor"
    assert result.first_divergence and result.first_divergence.name == "more"
    assert result.first_divergence.bits is None


@pytest.mark.parametrize("side", [0, 1])
def test_a_tensor_of_one_low_run_only_is_diverged(side: int, tmp_path: Path) -> None:
    sides = [tensors({ACTIVATION: SIGNS}) for _ in range(2)]
    sides[side]["low"][STEP]["activation/more"] = SIGNS.astype(np.float32)
    assert judged(tmp_path, *sides).verdict == "diverged"


def test_a_tensor_that_the_low_runs_lack_is_diverged(tmp_path: Path) -> None:
    sides = [tensors({ACTIVATION: SIGNS}, low={}) for _ in range(2)]
    assert "the low runs do not" in judged(tmp_path, *sides).reason


@pytest.mark.parametrize(
    ("one_side", "other", "said"),
    [
        (np.zeros((2, 3)), np.zeros((3, 2)), "shape (2, 3), keras (3, 2)"),
        (np.zeros(6), np.zeros((6, 1)), "shape (6,), keras (6, 1)"),
        (np.zeros(1), np.zeros(()), "shape (1,), keras ()"),
        (np.zeros(3), np.zeros(3, np.int64), "dtype float64, keras int64"),
        (np.zeros(3, np.int32), np.zeros(3, np.bool_), "dtype int32, keras bool"),
        (np.zeros(3, np.bool_), np.zeros(3), "dtype bool, keras float64"),
    ],
)
def test_another_shape_or_another_class_of_dtype_is_diverged(
    one_side: Array, other: Array, said: str, tmp_path: Path
) -> None:
    result = one(tmp_path, one_side, other)
    assert result.verdict == "diverged"
    assert said in result.reason
    assert result.checks["activation"].compared == 1  # type: ignore[union-attr]
    for same in (one_side, other):
        assert one(tmp_path, same, same).verdict == "match"


def test_another_width_of_the_same_class_is_no_divergence(tmp_path: Path) -> None:
    ids = np.arange(5)
    assert one(tmp_path, ids, ids.astype(np.int32), "input/input").verdict == "match"
    assert one(tmp_path, SIGNS, SIGNS, candidate_low=SIGNS.astype(np.float16)).verdict == "match"


@pytest.mark.parametrize("start", [0, 1000, 2**23, 2**40, 2**52])
def test_integers_are_equal_or_not(start: int, tmp_path: Path) -> None:
    ids = np.arange(start, start + 5)
    assert one(tmp_path, ids, ids, "sample/indices").verdict == "match"
    other = ids.copy()
    other[3] += 1
    assert one(tmp_path, ids, other, "sample/indices").verdict == "diverged"


def test_another_truth_is_diverged(tmp_path: Path) -> None:
    mask = np.array([True, False])
    assert one(tmp_path, mask, ~mask).verdict == "diverged"
    assert one(tmp_path, mask, mask).verdict == "match"


def test_values_that_are_not_finite(tmp_path: Path) -> None:
    nan = one(tmp_path, spoilt(3), spoilt(3))
    assert (nan.verdict, nan.reason) == ("inconclusive", "1 of 64 numbers is not finite on either side")
    assert one(tmp_path, spoilt(3, value=np.inf), spoilt(3, value=np.inf), "loss/loss").verdict == "inconclusive"
    low = one(tmp_path, SIGNS, SIGNS, reference_low=spoilt(3), candidate_low=spoilt(3))
    assert (low.verdict, low.reason) == ("inconclusive", "1 of 64 numbers of the float32 runs is NaN")
    assert one(tmp_path, spoilt(3, value=np.inf), spoilt(3, value=np.inf)).verdict == "match"
    wrong = [
        one(tmp_path, spoilt(3), spoilt(4)),
        one(tmp_path, SIGNS, spoilt(4)),
        one(tmp_path, spoilt(3, value=np.inf), spoilt(3, value=-np.inf)),
        one(tmp_path, spoilt(3, value=np.inf), spoilt(3)),
        one(tmp_path, SIGNS, SIGNS, candidate_low=spoilt(2)),
        one(tmp_path, SIGNS, SIGNS, reference_low=spoilt(2, value=np.inf)),
        one(tmp_path, SIGNS, SIGNS, "loss/loss", candidate_low=spoilt(2)),
    ]
    assert [result.verdict for result in wrong] == ["diverged"] * len(wrong)
    assert all("different positions of the float64 runs" in result.reason for result in wrong[:4])
    assert all("different positions of the float32 runs" in result.reason for result in wrong[4:])


def test_a_difference_beside_the_same_nan_is_seen(tmp_path: Path) -> None:
    other = spoilt(3)
    other[9] += 0.5
    result = one(tmp_path, spoilt(3), other)
    assert result.verdict == "diverged"
    assert result.first_divergence and result.first_divergence.index == [9]


def test_empty_tensors_and_tensors_of_zeros_match(tmp_path: Path) -> None:
    for array in (np.zeros((0, 3)), np.zeros(4), np.zeros(())):
        assert one(tmp_path, array, array, witness=array).verdict == "match"
    assert one(tmp_path, np.zeros(4), np.full(4, 1e-300)).verdict == "diverged"


def test_low_runs_of_another_shape_than_the_high_ones_are_diverged(tmp_path: Path) -> None:
    sides = [tensors({ACTIVATION: np.zeros(6)}, low={ACTIVATION: np.zeros(3)}) for _ in range(2)]
    result = judged(tmp_path, *sides)
    assert (result.verdict, result.reason) == ("diverged", "the low runs have the shape (3,), the others (6,)")


def test_a_witness_without_the_tensor_does_not_crash(tmp_path: Path) -> None:
    reference = tensors({ACTIVATION: SIGNS}, witness={})
    assert judged(tmp_path, reference, tensors({ACTIVATION: SIGNS * 1.5})).verdict == "diverged"


def test_a_parameter_that_one_side_has_from_the_second_step_on_is_diverged(tmp_path: Path) -> None:
    def both() -> dict[str, Any]:
        weights = ("parameter/v", "parameter/w")
        return {
            run: {stem: {key: at(run, SIGNS) for key in weights} for stem in ("initial", STEP)}
            for run in ("low", "high")
        }

    reference, candidate = both(), both()
    assert judged(tmp_path, reference, candidate).verdict == "match"
    for run in candidate.values():
        del run["initial"]["parameter/w"]
    for sides in ((reference, candidate), (candidate, reference)):
        result = judged(tmp_path, *sides)
        first = result.first_divergence
        assert first and (first.step, first.kind, first.name) == (None, "parameter", "w")


@pytest.mark.parametrize(("loss", "verdict"), [(np.inf, "inconclusive"), (1.0, "diverged")])
def test_behind_a_loss_that_is_infinite_on_both_sides_nan_and_infinity_are_alike(tmp_path, loss, verdict):
    sides = []
    for name, gradient in (("torch", np.inf), ("keras", np.nan)):
        step = {"loss/loss": np.asarray(loss), "gradient/w": np.asarray([1.0, gradient])}
        steps = {"step-000001": step, "step-000002": step}
        low = {key: array.astype(np.float32) for key, array in step.items()}
        sides.append(by_hand(tmp_path / name, {"high": steps, "low": dict.fromkeys(steps, low)}, name))
    assert compare(*sides).verdict == verdict


@pytest.mark.parametrize(
    ("value", "tells"), [(0.0, False), (np.nan, False), (np.inf, False), (1.0, True), (-1e-300, True)]
)
def test_outputs_that_say_nothing_are_inconclusive(value: float, tells: bool, tmp_path: Path) -> None:
    """Two models that return nothing but zeros, or NaN, are equal whatever they do."""

    def traces(name: str) -> dict[str, dict[str, dict[str, Array]]]:
        dead = np.full(3, value)
        step = {"activation/inner": np.ones(3), name: dead, f"{name}.second": np.zeros(2)}
        return {run: {"step-000000": step} for run in ("low", "high")}

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of differences of NaN
        result = compare(*(by_hand(tmp_path / side, traces("activation/(model)"), side) for side in ("torch", "keras")))
    assert result.verdict == ("match" if tells else "inconclusive")
    assert bool(result.reason) != tells
