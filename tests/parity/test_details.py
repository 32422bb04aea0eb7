"""What a result says of how much was compared, and what the page draws of it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from synthetic import Fault, Seen
from verdicts import judged, pair, tensors

from parity.core.arrays import Array
from parity.details import BATCHES, Extent, share
from parity.pairs.extent import hiding, note_batch_sizes, note_counterparts
from parity.report.words import extent_line, not_compared
from parity.results import CaseResult, Matched, Report, Variation
from parity.trace.manifest import Trace
from parity.trace.mapping import Entry, Mapping, Match, Matching, Unplaced


def test_weights_that_hide_differences_are_named() -> None:
    full = np.arange(1.0, 7).reshape(2, 3)
    weights = {"kernel": full, "bias": np.zeros(3), "scale": np.ones(3), "dead": full * [[0], [1]], "one": np.ones(1)}
    constant, dead = hiding(weights | {"order": np.zeros(4, np.int64)})
    assert "all values are equal in bias, scale;" in constant and "whole rows are zeros in dead;" in dead
    assert hiding({"kernel": full}) == []


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
