"""The verdict on two traces: what is a match, what is not, and that each rule can go either way."""

import contextlib
import itertools
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from synthetic import Fault, Seen, by_hand, record, small_case

from parity.core.arrays import Array
from parity.core.errors import TraceError
from parity.report import as_json
from parity.results import CaseResult, Check, Divergence, Finding, Report
from parity.trace.layout import Layout
from parity.verdict.kernel import Spread
from parity.verdict.rule import Rule
from parity.verdict.traces import compare

STEP = "step-000000"
SIGNS = np.where(np.arange(64) % 3, 1.0, -1.0)  # its largest value is 1, its norm 8
ACTIVATION = "activation/layer"


def at(run: str, value: Array) -> Array:
    """A tensor as a run stores it: floats of the low run in float32."""
    return value.astype(np.float32) if run == "low" and value.dtype == np.float64 else value


def tensors(high: dict[str, Array], stem: str = STEP, **runs: dict[str, Array]) -> dict[str, Any]:
    """The runs of one step; a low run that is not given is the high one rounded."""
    given = {"high": high, "low": high, **runs}
    return {run: {stem: {key: at(run, value) for key, value in named.items()}} for run, named in given.items()}


def judged(folder: Path, reference: dict[str, Any], candidate: dict[str, Any], **of: Any) -> CaseResult:
    return compare(by_hand(folder / "torch", reference, "torch", **of), by_hand(folder / "keras", candidate, "keras"))


def one(folder: Path, reference: Array, candidate: Array, key: str = ACTIVATION, **runs: Array) -> CaseResult:
    """The verdict on one tensor; `reference_low`, `candidate_low` and `witness` are its other runs."""
    sides = []
    for side, high in (("reference", reference), ("candidate", candidate)):
        low = runs.get(f"{side}_low", high)
        sides.append(tensors({key: high}, low={key: low}))
    if "witness" in runs:
        sides[0]["witness"] = {STEP: {key: runs["witness"]}}
    return judged(folder, *sides)


def pair(folder: Path, fault: Fault | None = None, **sides: Any) -> CaseResult:
    """The numpy network on both sides, adding in another order; the candidate with a fault."""
    case, centred = sides.pop("case", None), sides.pop("centred", False)
    runs = sides.pop("runs", ("low", "high", "witness"))
    faulty = {**sides, **({"fault": fault} if fault else {})}
    reference = record(folder / "torch", "torch", case, runs, centred=centred)
    candidate = record(folder / "keras", "keras", case, ("low", "high"), backwards=True, centred=centred, **faulty)
    return compare(reference, candidate)


def times(factor: float, kind: str, name: str, only: str = "") -> Fault:
    def fault(seen: Seen) -> Array:
        here = (seen.kind, seen.name) == (kind, name) and only in ("", seen.at)
        return seen.value * seen.value.dtype.type(factor) if here else seen.value

    return fault


# The numpy network


@pytest.mark.parametrize("at", ["float32", "float16", "bfloat16"])
def test_honest_rounding_is_a_match(at: str, tmp_path: Path) -> None:
    result = pair(tmp_path, case=small_case(precision=at))
    assert (result.verdict, result.first_divergence, result.reason, result.findings) == ("match", None, "", [])
    kinds = ["parameter", "sample", "input", "activation", "loss", "gradient", "update", "layout"]
    assert list(result.checks) == kinds
    counts = {kind: check.compared for kind, check in result.checks.items() if isinstance(check, Check)}
    # Steps 0 and 2 in full, 1 between, 3 the evaluation; the initial state has parameters alone.
    expected = {"parameter": 12, "sample": 4, "input": 3, "activation": 9, "loss": 3, "gradient": 12, "update": 8}
    assert counts == expected
    worst = result.checks["activation"].worst_bits  # type: ignore[union-attr]
    assert worst is None or worst >= {"float32": 20, "float16": 33, "bfloat16": 36}[at]
    assert bool(result.casts) == (at != "float32")


def test_what_only_one_side_has_stored_twice_is_judged_as_any_other(tmp_path: Path) -> None:
    def copied(seen: Seen) -> Array:
        return seen.value.copy() if (seen.kind, seen.name) == ("input", "relu") else seen.value

    result = pair(tmp_path, copied)
    assert result.verdict == "match"
    inputs = result.checks["input"]
    assert isinstance(inputs, Check) and inputs.compared == 3 + 3  # those of the model, and of one module


def test_a_module_that_is_given_something_else_is_told_by_its_input(tmp_path: Path) -> None:
    first = pair(tmp_path, times(1.01, "input", "relu")).first_divergence
    assert first and (first.step, first.kind, first.name) == (0, "input", "relu")


def test_the_same_trace_twice_differs_by_nothing(tmp_path: Path) -> None:
    trace = record(tmp_path, "torch")
    result = compare(trace, trace)
    assert result.verdict == "match"
    bits = [check.worst_bits for check in result.checks.values() if isinstance(check, Check)]
    assert bits == [None] * 7


@pytest.mark.parametrize(
    ("factor", "verdict"), [(1 + 1e-14, "match"), (1 + 1e-9, "subprecision"), (1 + 1e-6, "diverged"), (2, "diverged")]
)
def test_a_factor_is_judged_by_its_size_at_the_place_where_it_is(factor: float, verdict: str, tmp_path: Path) -> None:
    fault = times(factor, "activation", "relu")
    result = pair(tmp_path, fault, runs=("low", "high"))
    assert result.verdict == verdict
    if verdict != "match":
        first = result.first_divergence
        assert first and (first.step, first.kind, first.name) == (0, "activation", "relu")
        assert first.bits is not None and first.bits < 20
        assert set(first.sides) == {"torch", "keras"}
        assert result.reason == first.reason and "apart in float64" in first.reason


@pytest.mark.parametrize(("kind", "name"), [("gradient", "linear1.weight"), ("loss", "loss"), ("input", "input")])
def test_faults_are_found_in_every_kind(kind: str, name: str, tmp_path: Path) -> None:
    result = pair(tmp_path, times(1.01, kind, name))
    first = result.first_divergence
    assert result.verdict == "diverged"
    assert first and (first.step, first.kind, first.name) == (0, kind, name)
    assert result.checks[kind].verdict == "diverged"


def test_a_fault_of_the_low_run_alone_is_found(tmp_path: Path) -> None:
    result = pair(tmp_path, times(1.01, "activation", "relu", only="float32"))
    first = result.first_divergence
    assert result.verdict == "diverged"
    assert first and (first.kind, first.name) == ("activation", "relu")
    assert "keras's float32 run" in result.reason
    assert pair(tmp_path, times(1.0, "activation", "relu", only="float32")).verdict == "match"


def test_a_weight_decay_hides_in_the_parameters_and_shows_in_the_updates(tmp_path: Path) -> None:
    case = small_case(optimizer={"learning_rate": 1e-6})
    result = pair(tmp_path, case=case, weight_decay=0.01)
    first = result.first_divergence
    assert first and (first.step, first.kind) == (0, "update")
    assert (result.verdict, result.checks["update"].verdict) == ("diverged", "diverged")
    assert result.checks["parameter"].verdict != "diverged"
    assert pair(tmp_path, case=case).verdict == "match"


def test_a_truly_zero_gradient_that_adam_blows_up_is_judged_by_the_witness(tmp_path: Path) -> None:
    case = small_case(optimizer={"kind": "adam", "epsilon": 1e-25})
    assert pair(tmp_path, case=case, centred=True).verdict == "match"
    without = pair(tmp_path, case=case, centred=True, runs=("low", "high"))
    assert without.verdict == "diverged"
    assert without.first_divergence and without.first_divergence.name == "linear1.bias"
    assert pair(tmp_path, times(1.01, "gradient", "linear2.bias"), case=case, centred=True).verdict == "diverged"


# One tensor


@pytest.mark.parametrize(
    ("difference", "verdict"),
    [
        (0.0, "match"),
        (2.0**-51, "match"),  # within a few ulp
        (2.0**-44, "match"),  # 20 bits under the unit roundoff of float32
        (2.0**-43, "subprecision"),
        (2.0**-22, "subprecision"),
        (2.0**-21, "diverged"),
        (1.0, "diverged"),
    ],
)
def test_the_limits_of_the_high_runs(difference: float, verdict: str, tmp_path: Path) -> None:
    moved = SIGNS.copy()
    moved[5] -= difference
    result = one(tmp_path, SIGNS, moved, reference_low=SIGNS, candidate_low=SIGNS)
    check = result.checks["activation"]
    assert isinstance(check, Check)
    assert (result.verdict, check.verdict, check.compared) == (verdict, verdict, 1)
    by_bits = verdict != "match" or difference == 2.0**-44
    noise = max(difference, 2.0**-24)
    assert check.worst_bits == (pytest.approx(np.log2(noise / difference)) if by_bits else None)


def test_noise_of_the_low_runs_widens_the_limit(tmp_path: Path) -> None:
    moved, noisy = SIGNS * (1 + 2.0**-40), SIGNS * (1 + 2.0**-20)
    assert one(tmp_path, SIGNS, moved).verdict == "subprecision"
    assert one(tmp_path, SIGNS, moved, reference_low=noisy, candidate_low=noisy).verdict == "match"


@pytest.mark.parametrize(("away", "verdict"), [(2.0**-18, "match"), (2.0**-19, "diverged"), (0.0, "diverged")])
def test_up_to_64_times_the_witness_is_a_match(away: float, verdict: str, tmp_path: Path) -> None:
    result = one(tmp_path, SIGNS, SIGNS + 2.0**-12, "optimizer_state/v", witness=SIGNS + away)
    assert result.checks["optimizer_state"].verdict == verdict
    # There is no other tensor that would tell anything of the optimizer's state.
    assert result.verdict == ("inconclusive" if verdict == "match" else verdict)
    bits = result.checks["optimizer_state"].worst_bits  # type: ignore[union-attr]
    assert (bits is None) == (verdict == "match")  # what the witness decides is not judged by bits


@pytest.mark.parametrize(("difference", "verdict"), [(2.0**-22, "match"), (2.0**-21, "diverged")])
@pytest.mark.parametrize("key", [ACTIVATION, "loss/loss", "gradient/w"])
def test_at_step_0_the_witness_excuses_only_what_float32_cannot_see(
    key: str, difference: float, verdict: str, tmp_path: Path
) -> None:
    assert one(tmp_path, SIGNS, SIGNS + difference, key, witness=SIGNS + 1.0).verdict == verdict


def test_the_witness_is_the_reference_s_own(tmp_path: Path) -> None:
    """A candidate's witness is as far away as the candidate itself, and would excuse any fault."""
    reference = by_hand(tmp_path / "a", tensors({ACTIVATION: SIGNS}), "keras")
    wrong = {ACTIVATION: SIGNS * 1.5}
    candidate = by_hand(tmp_path / "b", tensors(wrong, witness=wrong), "keras")
    assert compare(reference, candidate).verdict == "diverged"
    assert compare(candidate, reference).verdict == "diverged"


CHAIN = ("activation/a", "activation/b")


def chain(folder: Path, first: float, second: float) -> CaseResult:
    """Two tensors, one after the other; a rounding grows by 2^12 from the first to the second."""
    same = dict.fromkeys(CHAIN, SIGNS)
    reference = tensors(same, witness={CHAIN[0]: SIGNS + 2.0**-50, CHAIN[1]: SIGNS + 2.0**-38})
    candidate = tensors({CHAIN[0]: SIGNS + first, CHAIN[1]: SIGNS + second}, low=same)
    return judged(folder, reference, candidate)


def test_what_follows_from_a_subprecision_origin_inherits_its_verdict(tmp_path: Path) -> None:
    grown = chain(tmp_path, 2.0**-30, 2.0**-18)
    assert grown.verdict == "subprecision"
    assert grown.first_divergence and grown.first_divergence.name == "a"
    alone = chain(tmp_path, 0.0, 2.0**-18)
    assert alone.verdict == "diverged"
    assert alone.first_divergence and alone.first_divergence.name == "b"


def test_more_than_an_origin_grows_to_is_diverged(tmp_path: Path) -> None:
    """The origin grows to 2^-18; eight times that is the limit."""
    assert chain(tmp_path, 2.0**-30, 2.0**-15).verdict == "subprecision"
    beyond = chain(tmp_path, 2.0**-30, 2.0**-14)
    assert beyond.verdict == "diverged"
    assert beyond.first_divergence and beyond.first_divergence.name == "b"  # diverged before an earlier subprecision


# The low runs


def noisy(folder: Path, bits: float, base: float, key: str, stem: str = STEP, back: bool = False) -> CaseResult:
    """The candidate's low run is `bits` noisier than the reference's, whose relative noise is `base`."""
    quiet, loud = SIGNS * (1 + base), SIGNS * (1 + base * 2.0**bits)
    lows = (loud, quiet) if back else (quiet, loud)
    return judged(folder, *(tensors({key: SIGNS}, stem, low={key: low}) for low in lows))


@pytest.mark.parametrize("back", [False, True])
@pytest.mark.parametrize("key", [ACTIVATION, "gradient/w"])
def test_a_noisier_low_run(key: str, back: bool, tmp_path: Path) -> None:
    side, base = ("torch" if back else "keras"), 2.0**-19
    for bits in (0, 3, 4.9):
        assert noisy(tmp_path, bits, base, key, back=back).findings == []
    for bits in (5.2, 7.9):
        result = noisy(tmp_path, bits, base, key, back=back)
        assert result.verdict == "match"
        (finding,) = result.findings
        assert (finding.id, finding.side, finding.where) == ("precision.noise", side, key)
        assert f"{bits} bits noisier" in finding.message
    result = noisy(tmp_path, 10, base, key, back=back)
    assert (result.verdict, result.findings) == ("diverged", [])
    assert f"{side}'s float32 run is 10.0 bits noisier" in result.reason


def test_far_noisier_but_invisible_is_a_finding(tmp_path: Path) -> None:
    result = noisy(tmp_path, 9, 2.0**-20, ACTIVATION)
    assert result.verdict == "match" and len(result.findings) == 1
    assert noisy(tmp_path, 11, 2.0**-20, ACTIVATION).verdict == "diverged"


@pytest.mark.parametrize("kinks", [0, 1])
def test_a_gradient_twice_as_large_in_one_low_run_is_found_whatever_a_relu_did(kinks: int, tmp_path: Path) -> None:
    high = np.concatenate([SIGNS, np.full(kinks, 1e-9)])
    switched = {ACTIVATION: np.abs(high) * np.sign(high - 1e-8), "gradient/w": SIGNS}
    wrong = {**switched, "gradient/w": SIGNS * 2}
    sides = [tensors({ACTIVATION: high, "gradient/w": SIGNS}, low=low) for low in (switched, wrong)]
    assert judged(tmp_path / "honest", sides[0], sides[0]).verdict == "match"
    assert judged(tmp_path / "wrong", *sides).verdict == "diverged"


def test_noise_under_the_roundoff_is_none(tmp_path: Path) -> None:
    assert noisy(tmp_path, 60, 2.0**-80, ACTIVATION).findings == []


@pytest.mark.parametrize(
    ("key", "stem"), [(ACTIVATION, "step-000001"), ("loss/loss", "step-000001"), ("optimizer_state/v", STEP)]
)
def test_low_runs_are_judged_forward_and_backward_at_step_0_alone(key: str, stem: str, tmp_path: Path) -> None:
    result = noisy(tmp_path, 10, 2.0**-19, key, stem)
    assert (result.verdict, result.findings) == ("match", [])


# What cannot be compared value by value


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


def spoilt(*places: int, value: float = np.nan) -> Array:
    array = SIGNS.copy()
    array[list(places)] = value
    return array


def test_values_that_are_not_finite(tmp_path: Path) -> None:
    nan = one(tmp_path, spoilt(3), spoilt(3))
    assert (nan.verdict, nan.reason) == ("inconclusive", "1 of 64 numbers are not finite on either side")
    assert one(tmp_path, spoilt(3, value=np.inf), spoilt(3, value=np.inf), "loss/loss").verdict == "inconclusive"
    low = one(tmp_path, SIGNS, SIGNS, reference_low=spoilt(3), candidate_low=spoilt(3))
    assert (low.verdict, low.reason) == ("inconclusive", "1 of 64 numbers of the float32 runs are NaN")
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


def test_low_runs_of_another_shape_than_the_high_ones_do_not_crash(tmp_path: Path) -> None:
    sides = [tensors({ACTIVATION: np.zeros(6)}, low={ACTIVATION: np.zeros(3)}) for _ in range(2)]
    with contextlib.suppress(TraceError):
        assert judged(tmp_path, *sides).verdict == "diverged"


def test_a_witness_without_the_tensor_does_not_crash(tmp_path: Path) -> None:
    reference = tensors({ACTIVATION: SIGNS}, witness={})
    with contextlib.suppress(TraceError):
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


# Updates


def updated(folder: Path, before: Array, after: Array, other: Array) -> CaseResult:
    """A parameter before and after the first step, on the reference's side and on the candidate's."""
    sides = [
        {
            run: {
                "initial": {"parameter/w": at(run, before)},
                STEP: {"parameter/w": at(run, now)},
                "step-000001": {ACTIVATION: at(run, SIGNS)},
                "step-000002": {"parameter/w": at(run, now * 0.5)},
            }
            for run in ("low", "high")
        }
        for now in (after, other)
    ]
    return judged(folder, *sides)


def test_an_update_is_judged_at_its_own_scale(tmp_path: Path) -> None:
    step = 2.0**-20
    result = updated(tmp_path, SIGNS, SIGNS - step, SIGNS - step * 1.01)
    first = result.first_divergence
    assert first and (first.step, first.kind, first.name) == (0, "update", "w")
    assert first.sides["torch"].shape == [64]
    assert result.checks["parameter"].verdict == "subprecision"
    assert result.checks["update"].compared == 2  # type: ignore[union-attr]
    assert updated(tmp_path, SIGNS, SIGNS - step, SIGNS - step).verdict == "match"


# Which is the first


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


# Whole traces


def test_parameters_on_other_devices_are_diverged(tmp_path: Path) -> None:
    layouts = (Layout(devices=["a", "b"], parameters={"w": [0]}), Layout(devices=["a", "b"], parameters={"w": [1]}))
    for other, verdict in ((layouts[0], "match"), (layouts[1], "diverged")):
        reference = by_hand(tmp_path / "torch", tensors({ACTIVATION: SIGNS}), "torch", layout=layouts[0])
        candidate = by_hand(tmp_path / "keras", tensors({ACTIVATION: SIGNS}), "keras", layout=other)
        result = compare(reference, candidate)
        assert (result.verdict, result.checks["layout"].verdict) == (verdict, verdict)
        assert ("parameters: w: torch on 0, keras on 1" in result.reason) == (verdict == "diverged")


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
    with contextlib.suppress(TraceError):
        assert judged(tmp_path, content, content).verdict != "match"


def test_two_traces_of_one_backend_are_reference_and_candidate(tmp_path: Path) -> None:
    reference = by_hand(tmp_path / "a", tensors({ACTIVATION: SIGNS}), "torch")
    candidate = by_hand(tmp_path / "b", tensors({ACTIVATION: SIGNS * 2}), "torch")
    first = compare(reference, candidate).first_divergence
    assert first and set(first.sides) == {"reference", "candidate"}


# Reports


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

    as_json.write(report, str(folder / "report.json"))
    found: dict[str, Any] = json.loads((folder / "report.json").read_text(), parse_constant=refuse)
    return found


FIELDS = {
    "": {"schema", "environment", "summary", "cases"},
    "cases": {"case", "verdict", "reason", "first_divergence", "causes", "checks", "findings", "lifted",
              "against_single", "seconds"},
    "first_divergence": {"step", "kind", "name", "replica", "bits"},
    "check": {"verdict", "compared", "worst_bits", "worst_name"},
    "layout": {"verdict", "differences", "declared"},
    "finding": {"id", "side", "where", "message"},
}  # fmt: skip


def test_the_json_has_the_fields_of_the_contract(tmp_path: Path) -> None:
    made = Report()
    made.add(pair(tmp_path, times(1.5, "gradient", "linear1.weight")))
    made.add(noisy(tmp_path / "noisy", 6, 2.0**-19, ACTIVATION))
    found = loaded(made, tmp_path)
    assert found["schema"] == 1
    none = dict.fromkeys(("subprecision", "inconclusive", "error", "skipped"), 0)
    assert found["summary"] == {"match": 1, "diverged": 1, **none}
    case, remarked = found["cases"]
    for kind in ("sample", "input", "activation", "loss", "gradient", "update", "parameter"):
        assert case["checks"][kind].keys() >= FIELDS["check"]
    assert found.keys() >= FIELDS[""]
    assert case.keys() >= FIELDS["cases"]
    assert case["first_divergence"].keys() >= FIELDS["first_divergence"]
    assert case["checks"]["layout"].keys() >= FIELDS["layout"]
    assert remarked["findings"][0].keys() >= FIELDS["finding"]
    assert remarked["first_divergence"] is None


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


@pytest.mark.parametrize(("stored", "verdict"), [(1.0, "subprecision"), (0.0, "diverged")])
def test_an_update_inherits_at_the_ulp_of_its_parameter(stored: float, verdict: str) -> None:
    """It is the difference of two stored parameters: rounding moves it by their ulp, however small it is itself."""
    origin = Spread(9, 1.0, 2.0**-30, 2.0**-24, 0.0, 0.0, 2.0**-53, True, True)
    update = Spread(9, 2.0**-10, 2.0**-31, 2.0**-24, 0.0, 0.0, 0.0, True, True)
    rule = Rule("float32")
    assert rule.high(origin).verdict == "subprecision"
    assert rule.high(update, stored).verdict == verdict
