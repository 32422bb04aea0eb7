"""One framework's training, spread over devices in different ways: still the same mathematics, or refused."""

import json
from pathlib import Path

import numpy as np
import pytest
from synthetic import Fault, broken, by_hand, ddp, honest, record, small_case

from parity import compare
from parity.config import schema
from parity.core.errors import TraceError
from parity.results import CaseResult
from parity.verdict.distributed import across


def spread(folder: Path, one: schema.Case, other: schema.Case, fault: Fault = honest) -> CaseResult:
    runs = ("low", "high")
    return across(record(folder / "one", "torch", one), record(folder / "other", "torch", other, runs, fault=fault))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (small_case(), ddp(2)),
        (ddp(3), small_case(devices=4)),
        (ddp(2), ddp(3)),
        (ddp(2), small_case(strategy="data_parallel")),
    ],
)
def test_the_same_training_on_other_devices(one: schema.Case, other: schema.Case, tmp_path: Path) -> None:
    found = spread(tmp_path, one, other)
    assert found.verdict == "match"
    assert found.against_single["torch"].compared > 20
    assert " against " in found.case


@pytest.mark.parametrize("other", [ddp(2), ddp(3)])
@pytest.mark.parametrize("one", [small_case(), ddp(2)])
def test_another_training_on_other_devices(one: schema.Case, other: schema.Case, tmp_path: Path) -> None:
    found = spread(tmp_path, one, other, broken)
    assert found.verdict == "diverged"
    assert "linear1.bias" in found.reason


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        (small_case(), ddp(2, precision="bfloat16"), "weights and data are rounded to the run precision"),
        (small_case(), ddp(2, seed=1), "seed is 0 against 1"),
        (small_case(), ddp(2, optimizer={"kind": "adam"}), "optimizer is SGD"),
        (small_case(), small_case(strategy="all_reduce"), "DistributedSampler takes the samples in another order"),
    ],
)
def test_trainings_that_are_not_the_same_mathematics(
    one: schema.Case, other: schema.Case, said: str, tmp_path: Path
) -> None:
    with pytest.raises(TraceError, match=said) as error:
        spread(tmp_path, one, other)
    assert "\n" not in str(error.value)


def test_two_folders_of_one_framework(tmp_path: Path) -> None:
    record(tmp_path / "one", "torch")
    record(tmp_path / "other", "torch", ddp(2))
    record(tmp_path / "keras", "keras", ddp(2), ("low", "high"))
    report = tmp_path / "report"
    flags = [str(tmp_path / "one"), str(tmp_path / "other"), f"--json={report}", "--quiet"]
    assert compare.main(flags) == 0
    assert json.loads(report.read_text())["cases"][0]["against_single"]["torch"]["verdict"] == "match"
    with pytest.raises(TraceError, match="different cases"):  # across frameworks, cases are equal or not compared
        compare.main([str(tmp_path / "one"), str(tmp_path / "keras")])


def test_replicas_that_do_not_say_which_samples_they_had(tmp_path: Path) -> None:
    tensors = {run: {"step-000000": {"loss/loss": np.asarray(1.0)}} for run in ("low", "high")}
    single = by_hand(tmp_path / "one", tensors)
    with pytest.raises(TraceError, match="which samples"):
        across(single, by_hand(tmp_path / "other", tensors, case=ddp(2), others=[tensors]))
