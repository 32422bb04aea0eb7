"""What a result says of how much was compared, and what the page draws of it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from synthetic import Fault, Seen, by_hand, record, small_case, whole
from verdicts import ACTIVATION, SIGNS, judged, one, pair, tensors, times

from parity.core.arrays import Array
from parity.details import BATCHES, EVALUATION, Extent, Share, share
from parity.pairs.extent import hiding, note_batch_sizes, note_counterparts
from parity.report.words import extent_line, not_compared
from parity.results import CaseResult, Matched, Report, Variation
from parity.trace.manifest import Trace
from parity.trace.mapping import Entry, Mapping, Match, Matching, Unplaced
from parity.verdict.traces import compare


def test_every_tensor_is_a_row_in_execution_order(tmp_path: Path) -> None:
    result = pair(tmp_path)
    assert result.details and result.extent
    rows = result.details.tensors
    assert len(rows) == sum(check.compared for kind, check in result.checks.items() if kind != "layout")  # type: ignore[union-attr]
    assert [row.step for row in rows] == sorted(
        (row.step for row in rows), key=lambda step: -1 if step is None else step
    )
    first = [row.name for row in rows if row.step == 0 and row.kind == "activation"]
    assert first == ["linear1", "relu", "linear2"]
    assert result.extent.parameters.percent == result.extent.activations.percent == 100
    assert (result.extent.parameters.of, result.extent.activations.of) == (10 * 20 + 20 + 20 * 5 + 5, 3)
    assert result.extent.alone == result.extent.not_promoted == {}


def test_weights_that_hide_differences_are_named() -> None:
    full = np.arange(1.0, 7).reshape(2, 3)
    weights = {"kernel": full, "bias": np.zeros(3), "scale": np.ones(3), "dead": full * [[0], [1]], "one": np.ones(1)}
    constant, dead = hiding(weights | {"order": np.zeros(4, np.int64)})
    assert "all values are equal in bias, scale;" in constant and "whole rows are zeros in dead;" in dead
    assert hiding({"kernel": full}) == []


def test_difference_noise_and_bits_belong_together(tmp_path: Path) -> None:
    low, high = np.float64(2.0**-20), np.float64(2.0**-30)
    result = one(tmp_path, SIGNS, SIGNS * (1 + high), reference_low=SIGNS, candidate_low=SIGNS * (1 + low))
    assert result.details
    (row,) = result.details.tensors
    assert row.difference == pytest.approx(high) and row.noise == pytest.approx(low, rel=0.01)
    assert row.bits == pytest.approx(np.log2(row.noise / row.difference)) and result.details.needed == 20


def test_the_noise_is_at_least_one_rounding_of_the_largest_value(tmp_path: Path) -> None:
    result = one(tmp_path, SIGNS, SIGNS)
    assert result.details and result.details.tensors[0].noise == 2.0**-24 and result.details.tensors[0].difference == 0


def test_a_tensor_of_one_side_is_told(tmp_path: Path) -> None:
    more = {ACTIVATION: SIGNS, "activation/extra": SIGNS}
    result = judged(tmp_path, tensors(more), tensors({ACTIVATION: SIGNS}))
    assert result.details and result.extent
    assert {row.name: row.alone for row in result.details.tensors} == {"layer": "", "extra": "torch"}
    assert result.extent.alone == {"torch": ["extra"]}
    assert (result.extent.activations.compared, result.extent.activations.of) == (1, 2)
    assert result.extent.activations.percent == 50


def rounding(name: str, back: bool) -> Fault:
    """A fault: the activation of a module is rounded to float32, and brought back to its own dtype if `back`."""

    def fault(seen: Seen) -> Array:
        if (seen.kind, seen.name) != ("activation", name):
            return seen.value
        rounded = seen.value.astype(np.float32)
        return rounded.astype(seen.value.dtype) if back else rounded

    return fault


@pytest.mark.parametrize("back", [False, True])
def test_a_high_run_that_is_not_float64_is_told(back: bool, tmp_path: Path) -> None:
    result = pair(tmp_path, rounding("relu", back))
    assert result.extent and result.extent.not_promoted == {"keras": ["relu"]}
    report = Report()
    report.add(result)
    assert "1 module of keras not in float64" in extent_line(report)
    assert "keras computed less than float64 in its high run in relu" in not_compared(result)
    result.lifted = ["torch: 1: torch.from_numpy, of values that stay rounded to float32", "torch: 2: Tensor.float"]
    told = [line for line in not_compared(result) if line.startswith("not promoted to float64: ")]
    assert told == [f"not promoted to float64: {result.lifted[0]}"]


def test_a_module_that_rounds_on_both_sides_is_told(tmp_path: Path) -> None:
    case, fault = small_case(), rounding("relu", back=True)
    reference = record(tmp_path / "torch", "torch", case, fault=fault)
    result = compare(reference, record(tmp_path / "keras", "keras", case, backwards=True, fault=fault))
    assert result.extent and result.extent.not_promoted == {"torch": ["relu"], "keras": ["relu"]}


FINE = np.random.default_rng(0).normal(size=64)
COARSE = FINE.astype(np.float32).astype(np.float64)
STORED: dict[str, dict[str, Array]] = {
    "inputs that pass through": {"input/layer": COARSE, "activation/layer": COARSE},
    "initial weights": {"input/layer": FINE, "activation/layer": COARSE},  # but those of the witness are moved
    "whole numbers": {"input/layer": FINE, "activation/layer": np.round(FINE)},
    "few numbers": {"input/layer": FINE, "activation/layer": COARSE[:3]},
}


@pytest.mark.parametrize("what", STORED)
def test_values_that_were_not_computed_are_not_called_so(what: str, tmp_path: Path) -> None:
    both = tensors(STORED[what])
    moved = {key: np.nextafter(value, 9) if what == "initial weights" else value for key, value in STORED[what].items()}
    result = judged(tmp_path, {**both, "witness": {"step-000000": moved}}, both)
    assert result.extent and result.extent.not_promoted == {}


def test_the_losses_of_every_step(tmp_path: Path) -> None:
    result = pair(tmp_path, times(3.0, "loss", "loss", only="float64"))
    assert result.details
    torch, keras = result.details.losses["torch"], result.details.losses["keras"]
    assert len(torch) == len(keras) == 3
    assert keras[0] == pytest.approx(3 * torch[0])  # type: ignore[operator]


def test_modes_that_did_not_run(tmp_path: Path) -> None:
    result = pair(tmp_path)
    assert result.extent and result.extent.not_run.keys() == {BATCHES}
    bare = judged(tmp_path / "bare", tensors({ACTIVATION: SIGNS}), tensors({ACTIVATION: SIGNS}))
    assert bare.extent and bare.extent.not_run.keys() == {EVALUATION, BATCHES}


def test_the_resolved_case_and_the_digest_of_its_data(tmp_path: Path) -> None:
    result = pair(tmp_path)
    assert result.resolved["steps"] == 3 and result.resolved["optimizer"]["kind"] == "sgd"
    assert len(result.data["sha256"]) == 64


def test_only_all_of_it_is_100_percent() -> None:
    assert share(9999, 10_000) == Share(compared=9999, of=10_000, percent=99.9)
    assert share(0, 0).percent is None and share(1, 1).percent == 100


def test_the_line_names_the_case_with_the_least(tmp_path: Path) -> None:
    report = Report()
    assert extent_line(report) == ""
    report.add(pair(tmp_path))
    assert extent_line(report).startswith("compared: 100% of the parameters, 100% of the activations; ")
    more = {ACTIVATION: SIGNS, "activation/extra": SIGNS}
    report.add(judged(tmp_path / "less", tensors(more), tensors({ACTIVATION: SIGNS})))
    report.cases[-1].case = "a/less"
    assert "at least 50% of the activations (a/less)" in extent_line(report)
    assert "; 1 tensor only in torch; other batch sizes not run in 2 cases" in extent_line(report)


def test_what_was_not_compared_at_all_says_why() -> None:
    skipped = CaseResult(case="a/b", verdict="skipped", reason="too few devices")
    assert not_compared(skipped) == ["nothing was compared: too few devices"]


def test_replicas_have_rows_of_their_own(tmp_path: Path) -> None:
    case = small_case(strategy="ddp")
    result = compare(
        record(tmp_path / "torch", "torch", case), record(tmp_path / "keras", "keras", case, backwards=True)
    )
    assert result.details and {row.replica for row in result.details.tensors} == {0, 1}


def test_a_tensor_without_numbers_has_none(tmp_path: Path) -> None:
    whole_numbers = whole(
        {
            "low": {"step-000000": {"activation/ids": np.arange(3)}},
            "high": {"step-000000": {"activation/ids": np.arange(3)}},
        }
    )
    result = compare(by_hand(tmp_path / "a", whole_numbers, "torch"), by_hand(tmp_path / "b", whole_numbers, "keras"))
    assert result.details
    (row,) = result.details.tensors
    assert (row.scale, row.difference, row.noise, row.alone, row.verdict) == (None, None, None, "", "match")


# Pairs


def mapped(tmp_path: Path, **alone: list[str]) -> CaseResult:
    """The result of a comparison whose weights and tensors were mapped as those of a pair."""
    result = pair(tmp_path)
    entry = Entry(torch=["linear1.weight"], keras=["dense/kernel"], by="shape")
    lonely = Unplaced(side="keras", name="dense/scale", shape=(3,))
    mapping = Mapping(entries=[entry], unplaced=[lonely], ignored=["linear2.bias", "other/kernel"])
    matching = Matching(matches=[Match(torch="relu", keras="dense", axes=[0, 1], by="value")])
    assert result.extent
    result.extent.alone = {"torch": ["recorded", "dropped"]}  # of the two traces
    result.matched = Matched(torch_alone=alone.get("torch", []), keras_alone=alone.get("keras", []))
    note_counterparts(result, mapping, matching, Trace(tmp_path / "torch"))
    return result


def test_a_pair_s_counterparts_and_what_stands_alone(tmp_path: Path) -> None:
    result = mapped(tmp_path, torch=["dropped"], keras=["extra"])
    assert result.details and result.extent
    assert [(each.what, each.torch, each.keras, each.by) for each in result.details.counterparts] == [
        ("weight", "linear1.weight", "dense/kernel", "shape"),
        ("activation", "relu", "dense", "value"),
        ("activation", "dropped", "", ""),
        ("activation", "", "extra", ""),
    ]
    assert result.extent.alone == {
        "torch": ["recorded", "dropped", "linear2.bias"],
        "keras": ["extra", "dense/scale", "other/kernel"],
    }


def batch(verdict: Any, skipped: str = "", name: str = "batch size 3") -> Variation:
    return Variation(name=name, verdict=verdict, skipped=skipped)


@pytest.mark.parametrize(("variations", "varied", "reason"), [
    ([batch("match")], True, None),
    ([batch("skipped", "both fail"), batch("diverged")], True, None),
    ([batch("skipped", "both fail")], True, "both fail"),
    ([batch("skipped", "keras crashed", name="all")], True, "keras crashed"),
    ([batch("match", name="zeros")], True, "the inputs have no batch in common"),
    ([], True, "inputs are varied only where those given match"),
    ([], False, "--no-vary"),
])  # fmt: skip
def test_why_a_pair_was_not_run_on_other_batch_sizes(
    variations: list[Variation], varied: bool, reason: str | None
) -> None:
    extent_of_pair = Extent(parameters=share(1, 1), activations=share(1, 1))
    result = CaseResult(case="pair/a", verdict="match", variations=variations, extent=extent_of_pair)
    note_batch_sizes(result, varied)
    assert extent_of_pair.not_run.get(BATCHES) == reason
