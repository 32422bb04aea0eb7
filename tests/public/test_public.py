"""Models that others published, in both frameworks: the verdict of each pair is the truth of public_table.py."""

import importlib.util
import itertools
from collections.abc import Callable

import pytest
from public_pair import FOLDER, PublicPair
from public_table import PAIRS
from slow import sampled

from parity.pairs import file
from parity.pairs.compare import compared
from parity.results import CaseResult

Judge = Callable[[str], CaseResult]

needs_published = pytest.mark.skipif(
    not all(map(importlib.util.find_spec, ["transformers", "keras_hub"])), reason="needs transformers and keras_hub"
)


@pytest.fixture(scope="module")
def judge(backends, tmp_path_factory) -> Judge:
    """`judge(name)`: both sides of a pair recorded and compared."""
    numbers = itertools.count()

    def judged(name: str) -> CaseResult:
        folder = tmp_path_factory.mktemp(f"public{next(numbers)}")
        return compared(file.load(FOLDER / f"{name}.toml", []), backends, folder, False)

    return judged


def rows() -> list:
    """A pair that is answered wrongly today fails, and its test says so when it no longer does."""
    wrong = {row.name: [pytest.mark.xfail(strict=True, reason=row.wrong)] for row in PAIRS if row.wrong}
    params = (pytest.param(row, id=row.name, marks=wrong.get(row.name, [])) for row in PAIRS)
    return sampled(params)


@needs_published
@pytest.mark.parametrize("row", rows())
def test_public_pair(row: PublicPair, judge: Judge):
    result = judge(row.name)
    first = result.first_divergence
    assert row.is_right(result.verdict, first.kind if first else ""), result
    assert row.unnamed or row.is_named({cause.id for cause in result.causes}), result


def test_every_pair_is_in_the_table():
    assert sorted(row.name for row in PAIRS) == sorted(path.stem for path in FOLDER.glob("*.toml"))


def test_what_differs_is_told_with_its_source():
    for row in PAIRS:
        assert bool(row.begins) == bool(row.difference) == bool(row.source) == (row.verdict != "match"), row


@pytest.mark.parametrize(
    ("verdict", "kind", "right"),
    [("diverged", "activation", True), ("diverged", "gradient", False), ("match", "", False), ("error", "", False)],
)
def test_verdict_and_place_are_the_truth_s(verdict, kind, right):
    assert PublicPair("x", "diverged", "forward").is_right(verdict, kind) == right


@pytest.mark.parametrize(
    ("ids", "named"), [({"gelu.form"}, True), ({"gelu.form", "unknown"}, True), ({"unknown"}, False), (set(), False)]
)
def test_a_cause_is_named_by_its_id(ids, named):
    assert PublicPair("x", causes=("gelu.*",)).is_named(ids) == named
    assert PublicPair("x", causes=("*",)).is_named(ids) == named
