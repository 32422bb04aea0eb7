"""The rule against what could hide a difference: large values, noise, NaN, and a reference that is not itself."""

from pathlib import Path

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray
from synthetic import NumpySide, Seen, by_hand, record, record_with
from verdicts import ACTIVATION, SIGNS, judged, one, tensors

from parity.results import CaseResult
from parity.runtime.drive import Account, Run
from parity.trace.manifest import Trace, write
from parity.trace.mapping import Mapping, Match, Matching
from parity.verdict.kernel import Runs, measure
from parity.verdict.rule import Rule
from parity.verdict.traces import compare

Array = NDArray[np.float64]
LAYER = Match(torch="layer", keras="layer", axes=[0], by="order")


def masked(large: float, error: float, folder: Path) -> CaseResult:
    """Values of size 1 beside masked ones of which one is wrong by `error`; the low runs are rounded."""
    reference = np.concatenate([SIGNS * 0.7, np.full(16, large)])
    candidate = reference.copy()
    candidate[5] += error
    return one(folder, reference, candidate)


@pytest.mark.parametrize("large", [-1e4, -1e9, 1e12, 1e30, float(np.finfo(np.float32).min)])
@pytest.mark.parametrize(("error", "verdict"), [(3.6, "diverged"), (1e-3, "diverged"), (2.0**-25, "subprecision")])
def test_a_large_value_does_not_hide_the_small_ones(large: float, error: float, verdict: str, tmp_path: Path) -> None:
    assert masked(large, error, tmp_path).verdict == verdict


def test_small_elements_may_be_as_noisy_as_their_low_runs() -> None:
    """What is left where large numbers cancel is off by as much in float32 as the large numbers' ulp."""
    random = np.random.default_rng(0)
    high = random.standard_normal(4096) * np.exp2(-random.integers(0, 20, 4096))
    other = high + 2.0**-46 * random.standard_normal(4096)
    lows = [high + 2.0**-23 * random.standard_normal(4096) for _ in range(2)]
    assert Rule("float32").high(measure(Runs(high, other, *lows))).verdict == "match"
    assert Rule("float32").high(measure(Runs(high, other, high, other))).verdict != "match"


@pytest.mark.parametrize("size", [1, 5, 5000, 100_000, 3_000_000])
def test_one_wrong_small_element_is_found_in_a_tensor_of_any_size(size: int) -> None:
    high = np.full(size + 1, 1e6)
    high[size // 2] = 1.0
    other = high.copy()
    other[size // 2] += 1e-5
    assert Rule("float32").high(measure(Runs(high, other, high, other))).verdict == "diverged"


def test_rounding_that_parts_the_trajectories_is_inconclusive(tmp_path: Path) -> None:
    """Behind the first step the witness says that nothing can be known of a loss that it moves as far itself."""
    for away, verdict in ((1.0, "inconclusive"), (0.0, "diverged"), (2.0**-40, "diverged")):
        sides = [
            tensors({"loss/loss": np.full(3, value)}, "step-000002", witness={"loss/loss": np.full(3, 1 + away)})
            for value in (1.0, 1.1)
        ]
        result = judged(tmp_path, *sides)
        assert result.verdict == verdict
        assert ("moves the reference itself" in result.reason) == (verdict == "inconclusive")


def test_a_lone_number_is_judged_beside_the_gradients_of_its_step(tmp_path: Path) -> None:
    """The witness of a loss may be small by luck; the gradients say that the trajectories have parted."""
    for drift, verdict in ((0.5, "inconclusive"), (0.0, "diverged")):
        high = {"loss/loss": np.asarray(1.0), "gradient/w": SIGNS}
        witness = {"loss/loss": np.asarray(1.0), "gradient/w": SIGNS * (1 + drift)}
        reference = tensors(high, "step-000002", witness=witness)
        candidate = tensors({**high, "loss/loss": np.asarray(1.1)}, "step-000002")
        assert judged(tmp_path, reference, candidate).verdict == verdict


@pytest.mark.parametrize(
    ("factors", "verdict"),
    [((-1.0, 3.0), "diverged"), ((1.1, 0.9), "diverged"), ((-1.0, -1.0), "match"), ((1.1, 1.1), "match")],
)
def test_low_runs_that_are_wrong_together_are_found(factors: tuple[float, float], verdict: str, tmp_path: Path) -> None:
    """What both do alike is no difference between them; it is told all the same."""
    witness = {ACTIVATION: SIGNS * (1 + 2.0**-52)}
    reference, candidate = (
        tensors({ACTIVATION: SIGNS}, low={ACTIVATION: SIGNS * factor}, witness=witness) for factor in factors
    )
    result = judged(tmp_path, reference, candidate)
    assert result.verdict == verdict
    said = [result.reason, *(finding.message for finding in result.findings)]
    assert any("noisier than rounding explains" in text for text in said)


def test_noise_that_has_nothing_to_do_with_the_values_may_be_of_any_size(tmp_path: Path) -> None:
    """As in (x + 1e6) - mean: float64 absorbs the witness's ulp, and float32 is off by a quantum of 1e6."""
    random = np.random.default_rng(0)
    high = random.standard_normal(256)
    sides = [tensors({ACTIVATION: high}, low={ACTIVATION: np.round(high * 16 + shift) / 16}) for shift in (0.0, 0.1)]
    sides[0]["witness"] = {"step-000000": {ACTIVATION: high}}
    result = judged(tmp_path, *sides)
    assert (result.verdict, result.findings) == ("match", [])


def test_few_elements_that_rounding_switched_are_no_noise(tmp_path: Path) -> None:
    """floor(x) of a number that rounding moves across a whole one is off by 1 in the low runs."""
    high, witness = np.arange(256.0) + 1, np.arange(256.0) + 1
    low = high.copy()
    low[7] -= 1.0
    reference, candidate = (tensors({ACTIVATION: high}, low={ACTIVATION: low}, witness={ACTIVATION: witness}),) * 2
    assert judged(tmp_path, reference, candidate).verdict == "match"


class Unseeded(NumpySide):
    """A reference whose gradient of one parameter has another last digit each time that it is run."""

    noise = 1e-4
    runs = 0

    def run(self, run: Run) -> Account:
        self.runs += 1
        self.fault = lambda seen: self._noisy(seen)
        return super().run(run)

    def _noisy(self, seen: Seen) -> Array:
        here = (seen.kind, seen.name, seen.step) == ("gradient", "linear1.weight", 1)
        return seen.value * (1 + self.noise * self.runs) if here else seen.value


@pytest.mark.parametrize("noise", [1e-4, 1e-11, 0.0])
def test_a_reference_that_is_not_itself_excuses_nothing(noise: float, tmp_path: Path) -> None:
    side = Unseeded("torch")
    side.noise = noise
    result = compare(record_with(side, tmp_path / "torch"), record(tmp_path / "keras", "keras", runs=("low", "high")))
    found = [finding for finding in result.findings if finding.id == "reference.not_reproducible"]
    assert [(each.side, each.where) for each in found] == ([("torch", "linear1.weight")] if noise else [])
    assert (result.verdict == "match") == (not noise)


def test_nothing_of_a_kind_that_could_be_compared_is_inconclusive(tmp_path: Path) -> None:
    """As where every gradient is ignored: a match would say something about them."""
    reference = by_hand(tmp_path / "torch", tensors({ACTIVATION: SIGNS, "gradient/w": SIGNS}), "torch")
    candidate = by_hand(tmp_path / "keras", tensors({ACTIVATION: SIGNS}), "keras")
    facts = candidate.manifest
    ignoring = msgspec.structs.replace(
        facts, mapping=Mapping(entries=[], ignored=["w"]), matching=Matching(matches=[LAYER])
    )
    write(tmp_path / "keras", ignoring)
    result = compare(reference, Trace(tmp_path / "keras"))
    assert result.verdict == "inconclusive"
    assert "no gradient has a counterpart" in result.reason


@pytest.mark.parametrize(("away", "verdict"), [(2.0**-30, "match"), (2.0**-45, "subprecision")])
def test_noise_as_large_as_the_values_does_not_say_what_rounding_is(away: float, verdict: str, tmp_path: Path) -> None:
    """As of sin(1e7 x), where float32 has no correct digit and float64 has nine."""
    low = {ACTIVATION: np.roll(SIGNS, 1)}
    reference = tensors({ACTIVATION: SIGNS}, low=low, witness={ACTIVATION: SIGNS * (1 + away)})
    candidate = tensors({ACTIVATION: SIGNS * (1 + 2.0**-26)}, low=low)
    result = judged(tmp_path, reference, candidate)
    assert result.verdict == verdict, result.reason


def test_a_mask_s_constant_does_not_make_lost_elements_negligible(tmp_path: Path) -> None:
    """Beside -1e30 an ulp of it would be larger than any number."""
    mask = np.full(64, -1e30)
    lost = SIGNS + 0.5
    for candidate, verdict in ((lost, "match"), (lost * -5, "diverged")):
        lows = {f"{side}_low": np.concatenate([np.zeros(64), mask]) for side in ("reference", "candidate")}
        high = [np.concatenate([values, mask]) for values in (lost, candidate)]
        assert one(tmp_path, *high, **lows).verdict == verdict


@pytest.mark.parametrize(
    ("key", "left", "verdict"),
    [
        ("gradient/layer", 7e-18, "match"),
        ("gradient/layer", 1e-13, "diverged"),  # more than the others' rounding
        (ACTIVATION, 7e-18, "diverged"),  # the others may be a mask's constant
    ],
)
def test_parts_of_a_gradient_that_cancel_leave_the_rounding_of_the_others(
    key: str, left: float, verdict: str, tmp_path: Path
) -> None:
    """As a sum of signs does, exactly in one order of adding: rounding shows in nothing else, nor in the witness."""
    torch, keras = np.append(0.12 * SIGNS, 0.0), np.append(0.12 * SIGNS, left)
    lows = {f"{side}_low": np.append(0.12 * SIGNS, 0.0) for side in ("reference", "candidate")}
    assert one(tmp_path, torch, keras, key=key, witness=torch, **lows).verdict == verdict


def test_a_column_that_cancels_does_not_hide_the_others_of_its_size(tmp_path: Path) -> None:
    """Only what float32 loses at the very element is what it cannot see."""
    high, low = np.tile(SIGNS, 16), np.tile(SIGNS, 16)
    high[::16] += 1e9
    low[:32] += 0.5  # lost, as where large numbers cancel
    wrong = high.copy()
    wrong[33:200] += 0.25
    low = np.where(high > 1e8, high, low)
    lows = {"reference_low": low, "candidate_low": low + (wrong - high)}
    assert one(tmp_path, high, wrong, **lows).verdict == "diverged"


@pytest.mark.parametrize(("step", "verdict"), [("step-000000", "diverged"), ("step-000002", "inconclusive")])
def test_behind_lost_low_runs_nothing_matches_without_the_witness(step: str, verdict: str, tmp_path: Path) -> None:
    """Noise of 1e8 is no licence for a difference of 0.25."""
    reference, candidate = (
        tensors({ACTIVATION: values}, step, low={ACTIVATION: SIGNS * 1e8}, witness={ACTIVATION: SIGNS * (1 + 2.0**-52)})
        for values in (SIGNS, SIGNS + 0.25)
    )
    assert judged(tmp_path, reference, candidate).verdict == verdict


@pytest.mark.parametrize("key", ["loss/loss", "buffer/mean", "gradient/w"])
def test_a_low_run_that_is_wrong_alone_is_found_in_every_kind_of_the_first_step(key: str, tmp_path: Path) -> None:
    reference, candidate = (tensors({key: SIGNS}, low={key: SIGNS * factor}) for factor in (1.0, 1.2))
    assert judged(tmp_path, reference, candidate).verdict == "diverged"


def test_underflow_is_no_kink(tmp_path: Path) -> None:
    """A softmax that is 1e-130 in float64 is zero in float32: no reason to look away from a gradient that is off."""
    high = np.concatenate([SIGNS, np.full(4, 1e-130)])
    sides = [
        tensors({ACTIVATION: high, "gradient/w": SIGNS}, low={ACTIVATION: high, "gradient/w": SIGNS * factor})
        for factor in (1.0, 0.9)
    ]
    assert judged(tmp_path, *sides).verdict == "diverged"


def test_whole_numbers_that_differ_say_in_which_run(tmp_path: Path) -> None:
    codes, others = np.arange(5), np.arange(5) + 1
    reference = tensors({ACTIVATION: codes}, low={ACTIVATION: codes})
    result = judged(tmp_path, reference, tensors({ACTIVATION: codes}, low={ACTIVATION: others}))
    assert (result.verdict, result.reason) == ("diverged", "whole numbers differ, of the float32 runs")
    assert result.first_divergence and {side.smallest for side in result.first_divergence.sides.values()} == {0.0, 1.0}
