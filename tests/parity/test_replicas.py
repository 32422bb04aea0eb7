"""Several replicas and several ranks: each replica is judged, what they share is judged once, faults are named."""

import copy
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import numpy as np
import pytest
from synthetic import Fault, NumpySide, Seen, by_hand, record, record_with, small_case

from parity.core.arrays import Array
from parity.core.errors import TraceError
from parity.data.batches import Batch, Dataset
from parity.results import CaseResult, Check
from parity.runtime.drive import Account, Run
from parity.trace import keys, manifest
from parity.trace.manifest import Trace
from parity.trace.recorder import Recorder
from parity.verdict.traces import compare

STEP = "step-000000"
SIGNS = np.where(np.arange(64) % 3, 1.0, -1.0)


def ddp(replicas: int, **changes: Any) -> Any:
    return small_case(strategy="ddp", devices=replicas, **changes)


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


def test_a_replica_is_not_compared_with_another(tmp_path: Path) -> None:
    """Two replicas see different samples: an activation of one is not that of the other."""
    trace = record(tmp_path, "torch", ddp(2))
    one, other = (trace.open("high", STEP, replica) for replica in range(2))
    assert not np.array_equal(one["sample/indices"], other["sample/indices"])
    assert not np.array_equal(one["activation/relu"], other["activation/relu"])
    assert np.array_equal(one["gradient/linear1.bias"], other["gradient/linear1.bias"])
    assert one.keys() == other.keys()


class OtherShard(NumpySide):
    """The last replica trains on the samples of the first."""

    def run(self, run: Run) -> Account:
        return super().run(run._replace(dataset=Shifted.of(run.dataset)))


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


@pytest.mark.parametrize("replicas", [2, 3])
def test_another_shard_is_told_by_its_samples(replicas: int, tmp_path: Path) -> None:
    result = pair(tmp_path, replicas, OtherShard("keras"), data={"batch": 6})
    assert first(result) == (0, "sample", "indices", replicas - 1)
    assert result.reason == "whole numbers differ, of the float64 runs"
    assert result.checks["input"].verdict == result.checks["gradient"].verdict == "diverged"


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


def test_samples_of_another_number_are_told_too(tmp_path: Path) -> None:
    result = pair(tmp_path, 2, OtherShard("keras"), data={"batch": 7})
    assert first(result) == (0, "sample", "indices", 1)
    assert "shape (3,), keras (4,)" in result.reason


def on(replica: int, kind: str, name: str, factor: float = 1.01) -> Fault:
    """A tensor of one replica, larger than it should be."""

    def fault(seen: Seen) -> Array:
        here = (seen.replica, seen.kind, seen.name) == (replica, kind, name)
        return seen.value * seen.value.dtype.type(factor) if here else seen.value

    return fault


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
    result = pair(tmp_path, 3, NumpySide("keras", fault=on(replica, kind, name)))
    assert first(result) == (0, kind, name, replica)


def test_a_local_gradient_comes_before_the_reduced_ones_that_it_spoils(tmp_path: Path) -> None:
    """In the trace replica 0's reduced gradient stands long before replica 1's local one."""
    result = pair(tmp_path, 2, NumpySide("keras", fault=on(1, "gradient", "linear1.bias@local")))
    assert first(result) == (0, "gradient", "linear1.bias@local", 1)
    wrong = NumpySide("keras", fault=on(0, "gradient", "linear1.bias"))
    assert first(pair(tmp_path, 2, wrong)) == (0, "gradient", "linear1.bias", 0)


def test_what_an_earlier_replica_does_later_is_not_first(tmp_path: Path) -> None:
    """Replica 0's loss is wrong, and replica 1's input: the input happened before."""

    def fault(seen: Seen) -> Array:
        here = (seen.replica, seen.kind) in ((0, "loss"), (1, "input"))
        return seen.value * seen.value.dtype.type(1.5) if here else seen.value

    assert first(pair(tmp_path, 2, NumpySide("keras", fault=fault))) == (0, "input", "input", 1)


@pytest.mark.parametrize("replicas", [2, 3])
def test_a_gradient_that_a_replica_does_not_reduce_is_named(replicas: int, tmp_path: Path) -> None:
    own: dict[str, Array] = {}

    def fault(seen: Seen) -> Array:
        if (seen.kind, seen.replica) == ("gradient", 1):
            plain = seen.name.removesuffix(keys.LOCAL)
            own[plain] = seen.value if plain != seen.name else own[plain]
            return own[plain]
        return seen.value

    result = pair(tmp_path, replicas, NumpySide("keras", fault=fault))
    assert first(result) == (0, "gradient", "linear1.weight", 1)
    assert result.checks["gradient"].verdict == "diverged"


def test_a_buffer_that_only_one_replica_has_wrong_is_named(tmp_path: Path) -> None:
    right = [{"buffer/mean": SIGNS}, {"buffer/mean": SIGNS * 2}]
    wrong = [{"buffer/mean": SIGNS}, {"buffer/mean": SIGNS}]  # as if replica 0's were copied
    assert judged(tmp_path / "right", right, right).verdict == "match"
    assert first(judged(tmp_path / "wrong", right, wrong)) == (0, "buffer", "mean", 1)
    assert first(judged(tmp_path / "back", wrong, right)) == (0, "buffer", "mean", 1)


def test_an_update_is_judged_in_its_own_replica(tmp_path: Path) -> None:
    """Replicas whose parameters drift apart have updates of their own."""
    trained = [2.0**-20, 2.0**-19]
    sides = []
    for wrong in (1.0, 1.01):
        updates = [trained[0], trained[1] * wrong]
        starts = SIGNS, np.roll(SIGNS, 1)
        stems = [
            {"initial": {"parameter/w": start}, STEP: {"parameter/w": start - by}}
            for start, by in zip(starts, updates, strict=True)
        ]
        sides.append(stems)
    right, wrong_side = sides
    traces = [replicated(tmp_path / str(i), name, side) for i, (name, side) in enumerate(
        [("torch", right), ("keras", right), ("keras", wrong_side)]
    )]  # fmt: skip
    assert compare(*traces[:2]).verdict == "match"
    result = compare(traces[0], traces[2])
    assert first(result) == (0, "update", "w", 1)
    assert result.checks["parameter"].verdict == "subprecision"


# Traces of several replicas, by hand


def runs(stems: dict[str, dict[str, Array]]) -> dict[str, Any]:
    """The high run and, rounded, the low one."""
    low = {
        stem: {key: a.astype(np.float32) if a.dtype == np.float64 else a for key, a in named.items()}
        for stem, named in stems.items()
    }
    return {"high": stems, "low": low}


def replicated(folder: Path, backend: str, parts: list[dict[str, dict[str, Array]]], **of: Any) -> Trace:
    """One rank for each part: stem -> key -> tensor."""
    one, *others = (runs(part) for part in parts)
    return by_hand(folder, one, backend, others=others, **of)


def judged(folder: Path, reference: list[dict[str, Array]], candidate: list[dict[str, Array]], **of: Any) -> CaseResult:
    """One step of some ranks on both sides."""
    sides = (("torch", reference), ("keras", candidate))
    return compare(*(replicated(folder / name, name, [{STEP: part} for part in parts], **of) for name, parts in sides))


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


@pytest.mark.parametrize("run", ["high", "low"])
def test_what_replicas_share_is_judged_once_unless_a_run_differs(run: str, tmp_path: Path) -> None:
    parts = [{STEP: {"parameter/w": SIGNS}}] * 2

    def trace(name: str, factor: float) -> Trace:
        contents = [runs(part) for part in parts]
        other = contents[1][run][STEP]["parameter/w"]
        contents[1][run] = {STEP: {"parameter/w": other * other.dtype.type(factor)}}
        return by_hand(tmp_path / name, contents[0], name.partition("-")[0], others=contents[1:])

    reference = trace("torch", 1.0)
    for factor, compared in ((1.0, 1), (1.0 + 2.0**-22, 2)):
        check = compare(reference, trace(f"keras-{factor}", factor)).checks["parameter"]
        assert isinstance(check, Check) and check.compared == compared


# Several ranks of one replica


def ranked(folder: Path, name: str, *parts: dict[str, Array], replicas: list[list[int]]) -> Trace:
    return replicated(folder / name, name.partition("-")[0], [{STEP: part} for part in parts], replicas=replicas)


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


def test_two_replicas_of_two_ranks(tmp_path: Path) -> None:
    parts = [{f"activation/{stage}": SIGNS * size} for stage, size in (("a", 1), ("b", 1), ("a", 3), ("b", 7))]
    trace = ranked(tmp_path, "torch", *parts, replicas=[[0, 1], [2, 3]])
    assert trace.replicas == 2
    largest = [{key: a.max() for key, a in trace.open("high", STEP, replica).items()} for replica in range(2)]
    assert largest == [{"activation/a": 1, "activation/b": 1}, {"activation/a": 3, "activation/b": 7}]


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


def test_every_rank_that_disagrees_is_kept(tmp_path: Path) -> None:
    parts = [{"parameter/w": SIGNS * (1 + rank)} for rank in range(3)]
    trace = ranked(tmp_path, "torch", *parts, replicas=[[0, 1, 2]])
    assert {key: a.max() for key, a in trace.open("high", STEP).items()} == {
        "parameter/w": 1, "parameter/w#1": 2, "parameter/w#2": 3,
    }  # fmt: skip


# References: what is rank 0's bit by bit stands there alone


def referring(folder: Path, key: str, stem: str = STEP) -> Trace:
    parts = [{"parameter/w": SIGNS, "buffer/b": SIGNS * 2}, {"loss/loss": SIGNS}]
    same = {f"{run}/rank-1/{stem}": [key] for run in ("high", "low")}
    return replicated(folder, "torch", [{STEP: part} for part in parts], same=same)


def test_a_reference_is_the_tensor_of_rank_0(tmp_path: Path) -> None:
    trace = referring(tmp_path, "parameter/w")
    found = trace.open("high", STEP, 1)
    assert found.keys() == {"loss/loss", "parameter/w"}
    assert np.array_equal(found["parameter/w"], SIGNS)
    assert found["parameter/w"].dtype == np.float64
    assert trace.open("low", STEP, 1)["parameter/w"].dtype == np.float32
    assert trace.open("high", STEP, 0).keys() == {"parameter/w", "buffer/b"}


def test_a_reference_is_judged_as_the_tensor_itself(tmp_path: Path) -> None:
    trace = referring(tmp_path / "torch", "parameter/w")
    for factor, verdict in ((1.0, "match"), (1.5, "diverged")):
        parts = [{"parameter/w": SIGNS, "buffer/b": SIGNS * 2}, {"loss/loss": SIGNS, "parameter/w": SIGNS * factor}]
        other = replicated(tmp_path / f"keras{factor}", "keras", [{STEP: part} for part in parts])
        result = compare(trace, other)
        assert result.verdict == verdict
        assert verdict == "match" or first(result) == (0, "parameter", "w", 1)


@pytest.mark.parametrize(("key", "stem"), [("parameter/v", STEP), ("loss/loss", STEP), ("parameter/w", "initial")])
def test_a_reference_to_nothing_is_damage(key: str, stem: str, tmp_path: Path) -> None:
    trace = referring(tmp_path, key, stem)
    with pytest.raises(TraceError, match=f"is damaged: rank 0 has no {key} in {stem}"):
        trace.open("high", stem, 1)


def test_a_recorder_notes_references_in_the_steps_that_record_them(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, 3, 1)
    for _ in range(5):
        recorder.same("parameter", "w")
        recorder.add("loss", "loss", np.asarray(1.0))
        recorder.add("buffer", "b", SIGNS)
        recorder.same("buffer", "b")
        recorder.next_step()
    both = ["parameter/w", "buffer/b#1"]
    assert recorder.references == {"initial": both, STEP: both, "step-000002": both}
    assert recorder.files["initial"] == ["buffer/b"]


def test_references_survive_the_manifest(tmp_path: Path) -> None:
    trace = referring(tmp_path, "parameter/w")
    assert manifest.read(tmp_path) == trace.manifest
    assert trace.manifest.same == {f"{run}/rank-1/{STEP}": ["parameter/w"] for run in ("high", "low")}
    without = msgspec.structs.replace(trace.manifest, same={})
    manifest.write(tmp_path, without)
    assert Trace(tmp_path).open("high", STEP, 1).keys() == {"loss/loss"}
