"""Summaries of large tensors: what they see of a difference, and that the verdict by them is that by the tensors."""

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from synthetic import Fault, NumpySide, honest, record, small_case
from verdicts import times

from parity.core.arrays import Array
from parity.core.errors import TraceError
from parity.runtime import drive
from parity.runtime.job import Job
from parity.trace import recorder, summary
from parity.trace.manifest import Trace
from parity.verdict.rule import SUBPRECISION
from parity.verdict.traces import compare

SIZE = 1 << 20
RANDOM = np.random.default_rng(0)
NORMAL = RANDOM.standard_normal(SIZE)
MASKED = np.where(RANDOM.random(SIZE) < 0.3, -1e9, NORMAL)
DISTRIBUTIONS = {
    "normal": NORMAL,
    "masked": MASKED,
    "sparse": np.where(RANDOM.random(SIZE) < 0.99, 0.0, NORMAL),
    "clipped": np.maximum(NORMAL, 0.0),
    "tiny": NORMAL * 2.0**-100,
}


def bits(values: Array, changed: Array) -> float:
    """How much smaller the change is than what float32 makes of the values, as their summaries tell."""
    whole, rounded, other = map(summary.summary, (values, values.astype(np.float32), changed))
    apart = np.abs(other - whole).max()
    return math.log2(np.abs(rounded - whole).max() / apart) if apart else math.inf


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_rounding_shrinks_as_it_does_in_the_tensor(name: str) -> None:
    values = DISTRIBUTIONS[name]
    moved = np.where(np.abs(values) < 1e8, values * (1 + 2.0**-53 * RANDOM.standard_normal(SIZE)), values)
    assert bits(values, moved) > 24


@pytest.mark.parametrize("name", DISTRIBUTIONS)
@pytest.mark.parametrize("size", [5_000, SIZE])
def test_one_wrong_element_shows(name: str, size: int) -> None:
    """Wrong by 10^-6 of itself, in 5,000 elements and in a million, also beside others of -10^9."""
    values = DISTRIBUTIONS[name][:size].copy()
    changed = values.copy()
    place = np.flatnonzero((values != 0) & (np.abs(values) < 1e8))[size // 500]
    changed[place] *= 1 + 1e-6
    assert bits(values, changed) < 20
    assert summary.is_concentrated(*map(summary.summary, (values, changed)))


def test_a_difference_everywhere_is_not_that_of_a_few() -> None:
    changed = NORMAL * (1 + 1e-8)
    assert not summary.is_concentrated(*map(summary.summary, (NORMAL, changed)))


@pytest.mark.parametrize("distance", [1, 7, SIZE // summary.PARTS, SIZE // 2])
def test_an_exchange_of_two_elements_shows(distance: int) -> None:
    changed = NORMAL.copy()
    changed[[3, 3 + distance]] = changed[[3 + distance, 3]]
    assert bits(NORMAL, changed) < 0


def test_the_places_of_what_is_not_finite() -> None:
    values = NORMAL[:10_000].copy()
    values[[17, 9_999]] = np.nan, -np.inf
    elsewhere = NORMAL[:10_000].copy()
    elsewhere[[18, 9_999]] = np.nan, -np.inf
    here, there = summary.summary(values), summary.summary(elsewhere)
    assert np.isnan(here).sum() == 1 and (here == -np.inf).sum() == 1
    assert not np.array_equal(here, there, equal_nan=True)
    assert np.array_equal(here, summary.summary(values), equal_nan=True)
    assert summary.largest(here, there) == np.abs(values[np.isfinite(values)]).max()


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.bool_])
def test_whole_numbers_are_equal_or_not(dtype: type) -> None:
    values = (RANDOM.random(9_001) > 0.5).astype(dtype)
    changed = values.copy()
    changed[4_567] = not changed[4_567]
    kept = summary.summary(values)
    assert kept.dtype == (np.bool_ if dtype is np.bool_ else np.int64)
    assert np.array_equal(kept, summary.summary(values.astype(np.int64)))
    assert not np.array_equal(kept, summary.summary(changed))


def both(folder: Path, monkeypatch: pytest.MonkeyPatch, fault: Fault) -> list[Trace]:
    """Both sides' traces of the numpy network, in which all tensors of more than 8 elements are summaries."""
    monkeypatch.setattr(recorder, "LARGE", 8)
    sides = NumpySide("torch"), NumpySide("keras", fault, backwards=True)
    for side in sides:
        job = Job(case=small_case(), runs=["low", "high", "witness"], folder=str(folder / side.NAME), summarises=True)
        drive.record(job, side)
    return [Trace(folder / side.NAME) for side in sides]


def on(kind: str, name: str, change: Callable[[Array], Array | None]) -> Fault:
    """A fault that changes one tensor."""
    return lambda seen: change(seen.value) if (seen.kind, seen.name) == (kind, name) else seen.value


def one_element(value: Array) -> Array:
    """One element is another, by less than float32 can see in it."""
    changed = value.copy()
    changed[1, 1] += np.abs(changed).max() * 1e-9
    return changed


FAULTS = {
    "none": honest,
    "a factor": times(1 + 1e-4, "activation", "linear1"),
    "what float32 cannot see": times(1 + 1e-8, "gradient", "linear1.weight"),
    "one element": on("gradient", "linear2.weight", one_element),
    "a low run's rounding": times(1 + 2.0**-6, "activation", "linear2", only="float32"),
    "a tensor of one side": on("activation", "linear2", lambda value: None),
    "not finite": on("gradient", "linear2.weight", lambda value: value * np.nan),
}


@pytest.mark.parametrize("name", FAULTS)
def test_the_verdict_is_that_by_whole_tensors(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fault = FAULTS[name]
    reference = record(tmp_path / "whole" / "torch", "torch")
    candidate = record(tmp_path / "whole" / "keras", "keras", fault=fault, backwards=True)
    whole, short = compare(reference, candidate), compare(*both(tmp_path, monkeypatch, fault))
    assert short.verdict == whole.verdict
    assert bool(short.first_divergence) == bool(whole.first_divergence)
    if short.first_divergence and whole.first_divergence:
        places = [(each.step, each.kind, each.name) for each in (short.first_divergence, whole.first_divergence)]
        assert places[0] == places[1]


def test_shapes_of_summaries_are_those_of_the_tensors(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    traces = both(tmp_path, monkeypatch, honest)
    facts = traces[0].manifest
    names = {(file, key) for file, shapes in facts.summarised.items() for key in shapes}
    assert {key for file, key in names if file == "high/rank-0/initial"} == {
        "parameter/linear1.weight",
        "parameter/linear1.bias",
        "parameter/linear2.weight",
    }
    weight = traces[0].open("high", "initial")["parameter/linear1.weight"]
    assert summary.shape(weight) == tuple(facts.summarised["high/rank-0/initial"]["parameter/linear1.weight"])


def test_another_shape_is_told_as_that_of_the_tensor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    reference, candidate = both(tmp_path, monkeypatch, honest)
    candidate.manifest.summarised["high/rank-0/step-000000"]["activation/relu"] = (10, 8)
    shape = reference.manifest.summarised["high/rank-0/step-000000"]["activation/relu"]
    assert compare(reference, candidate).reason == f"torch has the shape {shape}, keras (10, 8)"


def test_a_summary_is_not_compared_with_a_tensor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    whole = record(tmp_path / "whole", "keras")
    with pytest.raises(TraceError, match="whole, the other a summary of it; record both alike"):
        compare(both(tmp_path, monkeypatch, honest)[0], whole)


def test_a_few_elements_are_visible_where_the_sums_hide_them() -> None:
    """The limit of subprecision is that of the elements, which are smaller than the sums of thousands of them."""
    values, changed = NORMAL.copy(), NORMAL.copy()
    changed[5] += 4e-6
    here, there = map(summary.summary, (values, changed))
    apart = np.abs(here - there).max()
    assert SUBPRECISION * summary.largest(here, there) < apart < SUBPRECISION * np.abs(here).max()
    assert summary.is_concentrated(here, there)
