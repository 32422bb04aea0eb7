"""The verdict on two traces: what is a match, what is not, and that each rule can go either way."""

from pathlib import Path

import numpy as np
import pytest
from synthetic import Seen, by_hand, record, small_case
from verdicts import ACTIVATION, SIGNS, STEP, at, judged, noisy, one, pair, tensors, times

from parity.core.arrays import Array
from parity.results import CaseResult, Check
from parity.verdict.kernel import Spread
from parity.verdict.rule import Rule
from parity.verdict.traces import compare

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


@pytest.mark.parametrize(("stored", "verdict"), [(1.0, "subprecision"), (0.0, "diverged")])
def test_an_update_inherits_at_the_ulp_of_its_parameter(stored: float, verdict: str) -> None:
    """It is the difference of two stored parameters: rounding moves it by their ulp, however small it is itself."""
    origin = Spread(9, 1.0, 2.0**-30, 2.0**-24, 0.0, 0.0, 2.0**-53, True, True)
    update = Spread(9, 2.0**-10, 2.0**-31, 2.0**-24, 0.0, 0.0, 0.0, True, True)
    rule = Rule("float32")
    assert rule.high(origin).verdict == "subprecision"
    assert rule.high(update, stored).verdict == verdict
