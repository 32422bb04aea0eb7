"""Pairs of models as people write and port them: those that are the same computation match, each fault is found.

tests/pairs/ holds them, tests/pairs_table.py what is to be said of each.
"""

import importlib.util
import itertools
import json
import re
from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from judged import passes_strict
from pairs_table import FAULTS, PAIRS, PUBLISHED, PUBLISHED_FAULTS, Faithful, Planted

from parity.config.pair import INTERNAL_ERROR
from parity.pairs import file
from parity.pairs.compare import compared
from parity.results import CaseResult

FOLDER = Path(__file__).parent / "pairs"
HANDED = re.compile(r"the input that it passes to (\S+) differs")  # the reason of a place between modules
Compared = Callable[..., CaseResult]

needs_published = pytest.mark.skipif(
    not all(map(importlib.util.find_spec, ["transformers", "keras_hub"])), reason="needs transformers and keras_hub"
)


@pytest.fixture(scope="module")
def judge(backends, tmp_path_factory) -> Compared:
    """`judge(name, overrides)`: both sides of a pair recorded and judged, faithful ones on variations too."""
    numbers = itertools.count()

    def judged(name: str, overrides: list[str]) -> CaseResult:
        folder = tmp_path_factory.mktemp(f"pair{next(numbers)}")
        varied = not overrides  # a fault is to be found on the inputs that are given
        return compared(file.load(FOLDER / f"{name}.toml", overrides), backends, folder, varied)

    return judged


def named(rows: list) -> list:
    return [pytest.param(row, id=row.name if isinstance(row, Faithful) else planted_id(row)) for row in rows]


def planted_id(row: Planted) -> str:
    changed = [*row.arguments.items(), *row.train.items()]
    return "-".join([row.pair, *(f"{key}={value}" for key, value in changed)])


def overrides(row: Planted) -> list[str]:
    """The fault as --set has it."""
    arguments = [f"pair.{row.side}_kwargs.{key}={json.dumps(value)}" for key, value in row.arguments.items()]
    return arguments + [f"train.{key}={json.dumps(value)}" for key, value in row.train.items()]


def places(result: CaseResult) -> list[str]:
    """The modules that the result names: the first divergence's, and those of the causes."""
    first = result.first_divergence
    found = [first.name, *HANDED.findall(first.reason)] if first else []
    return [name.partition("#")[0] for name in [*found, *(cause.where for cause in result.causes)]]


def check_faithful(row: Faithful, result: CaseResult) -> None:
    assert result.verdict == row.verdict, result
    assert row.verdict != "match" or passes_strict(result), result.findings
    assert not row.cause or row.cause in [cause.id for cause in result.causes], result


def check_planted(row: Planted, result: CaseResult) -> None:
    assert result.verdict == row.verdict, result
    assert not result.first_divergence or any(
        fnmatchcase(place, glob) for place in places(result)[:2] for glob in row.where
    ), result
    assert not row.cause or row.cause in [cause.id for cause in result.causes], result
    assert INTERNAL_ERROR not in [cause.id for cause in result.causes], result


@pytest.mark.slow
@pytest.mark.parametrize("row", named(PAIRS))
def test_faithful_pair(row, judge):
    check_faithful(row, judge(row.name, []))


@pytest.mark.slow
@pytest.mark.parametrize("row", named(FAULTS))
def test_fault_of_a_port(row, judge):
    check_planted(row, judge(row.pair, overrides(row)))


@pytest.mark.slow
@needs_published
@pytest.mark.parametrize("row", named(PUBLISHED))
def test_published_pair(row, judge):
    check_faithful(row, judge(row.name, []))


@pytest.mark.slow
@needs_published
@pytest.mark.parametrize("row", named(PUBLISHED_FAULTS))
def test_fault_of_a_published_pair(row, judge):
    check_planted(row, judge(row.pair, overrides(row)))
