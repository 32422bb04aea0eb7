"""Several replicas and several ranks: each replica is judged, what they share is judged once, faults are named."""

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from synthetic import NumpySide, by_hand, ddp, record, record_with
from verdicts import SIGNS, STEP, tensors, times

from parity.core.arrays import Array
from parity.core.errors import TraceError
from parity.data.batches import Batch, Dataset
from parity.results import CaseResult, Check
from parity.runtime.drive import Account, Run
from parity.trace.manifest import Trace
from parity.verdict.traces import compare


def pair(folder: Path, replicas: int, candidate: NumpySide, **changes: Any) -> CaseResult:
    """The numpy network, trained by replicas, against a candidate."""
    case = ddp(replicas, **changes)
    reference = record(folder / "torch", "torch", case)
    return compare(reference, record_with(candidate, folder / "keras", case, ("low", "high")))


def first(result: CaseResult) -> tuple[int | None, str, str, int]:
    """Where a case diverged first."""
    assert result.verdict == "diverged"
    place = result.first_divergence
    assert place
    return place.step, place.kind, place.name, place.replica


# The numpy network


@pytest.mark.parametrize("batch", [8, 7])
@pytest.mark.parametrize("replicas", [1, 2, 3])
def test_replicas_that_add_in_another_order_match(replicas: int, batch: int, tmp_path: Path) -> None:
    result = pair(tmp_path, replicas, NumpySide("keras", backwards=True), data={"batch": batch})
    assert (result.verdict, result.first_divergence, result.reason, result.findings) == ("match", None, "", [])
    counts = {kind: check.compared for kind, check in result.checks.items() if isinstance(check, Check)}
    n = replicas
    expected = {"sample": 4 * n, "input": 3 * n, "activation": 9 * n, "loss": 3 * n, "parameter": 12, "update": 8}
    gradients = 12 + 12 * n if n > 1 else 12  # each replica's own, and once what they have in common
    assert counts == {**expected, "gradient": gradients}


class Shifted(Dataset):
    """A dataset whose last replica gets the first one's part."""

    @classmethod
    def of(cls, dataset: Dataset) -> "Shifted":
        shifted = copy.copy(dataset)
        shifted.__class__ = cls
        return shifted  # type: ignore[return-value]

    def _step(self, indices: Any) -> list[list[Batch]]:
        parts = super()._step(indices)
        return [*parts[:-1], parts[0]]


class LateShard(NumpySide):
    """The last replica trains on the samples of the first in the second step alone."""

    def run(self, run: Run) -> Account:
        right, wrong = run.dataset.steps(), Shifted.of(run.dataset).steps()
        steps = [one if step != 1 else other for step, (one, other) in enumerate(zip(right, wrong, strict=True))]
        with mock.patch.object(Dataset, "steps", lambda dataset: iter(steps)):
            return super().run(run)


@pytest.mark.parametrize("every", [1, 100])
def test_another_shard_is_told_in_a_step_of_which_only_the_samples_are_stored(every: int, tmp_path: Path) -> None:
    result = pair(tmp_path, 2, LateShard("keras"), every=every)
    assert first(result) == (1, "sample", "indices", 1)
    samples = result.checks["sample"]
    assert isinstance(samples, Check) and samples.compared == 2 * 4  # three steps and the evaluation


@pytest.mark.parametrize("replica", [0, 1, 2])
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("input", "input"),
        ("activation", "relu"),
        ("loss", "loss"),
        ("gradient", "linear2.weight@local"),
        ("gradient", "linear2.weight"),
    ],
)
def test_a_fault_is_named_with_its_replica(replica: int, kind: str, name: str, tmp_path: Path) -> None:
    result = pair(tmp_path, 3, NumpySide("keras", fault=times(1.01, kind, name, replica=replica)))
    assert first(result) == (0, kind, name, replica)


def test_a_buffer_that_only_one_replica_has_wrong_is_named(tmp_path: Path) -> None:
    right = [{"buffer/mean": SIGNS}, {"buffer/mean": SIGNS * 2}]
    wrong = [{"buffer/mean": SIGNS}, {"buffer/mean": SIGNS}]  # as if replica 0's were copied
    assert judged(tmp_path / "right", right, right).verdict == "match"
    assert first(judged(tmp_path / "wrong", right, wrong)) == (0, "buffer", "mean", 1)
    assert first(judged(tmp_path / "back", wrong, right)) == (0, "buffer", "mean", 1)


# Traces of several replicas, by hand


def replicated(folder: Path, backend: str, parts: Sequence[dict[str, Array]], **of: Any) -> Trace:
    """One step of a rank for each part."""
    one, *others = map(tensors, parts)
    return by_hand(folder, one, backend, others=others, **of)


def judged(folder: Path, reference: list[dict[str, Array]], candidate: list[dict[str, Array]], **of: Any) -> CaseResult:
    """One step of some ranks on both sides."""
    sides = (("torch", reference), ("keras", candidate))
    return compare(*(replicated(folder / name, name, parts, **of) for name, parts in sides))


def test_traces_of_another_number_of_replicas_cannot_be_compared(tmp_path: Path) -> None:
    part = {"loss/loss": np.asarray(1.0)}
    with pytest.raises(TraceError, match=r"torch trained 2 replicas, keras 1 .* same --devices"):
        judged(tmp_path, [part, part], [part])


def test_a_tensor_that_one_replica_lacks_on_one_side_is_diverged(tmp_path: Path) -> None:
    both, less = {"loss/loss": SIGNS, "activation/a": SIGNS}, {"loss/loss": SIGNS}
    assert judged(tmp_path / "less", [both, less], [both, less]).verdict == "match"  # as nn.DataParallel's replicas
    result = judged(tmp_path / "one", [both, both], [both, less])
    assert first(result) == (0, "activation", "a", 1)
    assert result.reason == "only torch has this tensor"
    assert first(judged(tmp_path / "other", [both, less], [both, both])) == (0, "activation", "a", 1)


# Several ranks of one replica


def ranked(folder: Path, name: str, *parts: dict[str, Array], replicas: list[list[int]]) -> Trace:
    return replicated(folder / name, name.partition("-")[0], parts, replicas=replicas)


def test_the_ranks_of_a_replica_make_one(tmp_path: Path) -> None:
    stage0 = {"sample/indices": np.arange(3), "activation/a": SIGNS, "gradient/a": SIGNS, "parameter/a": SIGNS}
    stage1 = {"sample/indices": np.arange(3), "activation/b": SIGNS, "loss/loss": SIGNS, "parameter/b": SIGNS}
    cut = ranked(tmp_path, "torch", stage0, stage1, replicas=[[0, 1]])
    assert (cut.replicas, cut.stems("high")) == (1, [STEP])
    assert list(cut.open("high", STEP)) == [
        "sample/indices", "activation/a", "activation/b", "loss/loss", "gradient/a", "parameter/a", "parameter/b",
    ]  # fmt: skip
    whole = ranked(tmp_path, "keras", {**stage0, **stage1}, replicas=[[0]])
    assert compare(cut, whole).verdict == compare(whole, cut).verdict == "match"


def test_ranks_of_a_replica_that_disagree_are_diverged(tmp_path: Path) -> None:
    """Both stages of a pipeline hold a tensor that should be the same."""
    one, other = {"parameter/w": SIGNS}, {"parameter/w": SIGNS * 1.5}
    whole = ranked(tmp_path, "keras", one, replicas=[[0]])
    agreeing = ranked(tmp_path, "torch-agreeing", one, one, replicas=[[0, 1]])
    assert list(agreeing.open("high", STEP)) == ["parameter/w"]
    assert compare(agreeing, whole).verdict == "match"
    for parts in ((one, other), (one, one, other), (one, {}, other)):
        trace = ranked(tmp_path, f"torch-{len(parts)}", *parts, replicas=[list(range(len(parts)))])
        result = compare(trace, whole)
        assert first(result) == (0, "parameter", "w#1", 0)
        assert result.reason == "only torch has this tensor"


# References: what is rank 0's bit by bit stands there alone


def referring(folder: Path, key: str, stem: str = STEP) -> Trace:
    parts = [{"parameter/w": SIGNS, "buffer/b": SIGNS * 2}, {"loss/loss": SIGNS}]
    same = {f"{run}/rank-1/{stem}": [key] for run in ("high", "low")}
    return replicated(folder, "torch", parts, same=same)


@pytest.mark.parametrize(("key", "stem"), [("parameter/v", STEP), ("loss/loss", STEP), ("parameter/w", "initial")])
def test_a_reference_to_nothing_is_damage(key: str, stem: str, tmp_path: Path) -> None:
    trace = referring(tmp_path, key, stem)
    with pytest.raises(TraceError, match=f"is damaged: rank 0 has no {key} in {stem}"):
        trace.open("high", stem, 1)
