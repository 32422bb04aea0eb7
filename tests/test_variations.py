"""Ports that differ only where the inputs given do not go: a variation of the inputs, or the coverage, says so."""

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from judged import remembered
from slow import sampled

from parity.pairs import file
from parity.pairs.compare import compared
from parity.pairs.vary.outcome import OTHER_BATCHES
from parity.report.words import coverage_lines
from parity.results import CaseResult

MODELS = Path(__file__).parent / "variations"
# How the reason begins where it is not the inputs.
WHERE = {"second call": "at a", "training mode": "in"}
Compared = Callable[..., CaseResult]


class Port(NamedTuple):
    """A port that differs off its inputs alone.

    `by`: the variation that finds it; `says`: a part of the reason; `cause`, `where`: the cause and its place.
    """

    name: str
    inputs: str
    by: str
    says: str = ""
    cause: str = ""
    where: str = "(model)"


SMALL = "[inputs.x]\nshape = [4, 6]\nscale = 0.125"
KEEP = SMALL + '\n[inputs.keep]\ndtype = "bool"\nnpz = "keep.npz"'
IDS = '[inputs.ids]\nshape = [4, 8]\ndtype = "int32"\nrange = [1, 20]'
TRAIN = "\n[train]\nsteps = 2"
PORTS = [
    Port("clamped", SMALL, "scale 100", cause="relu.cap", where="1"),
    Port("shrunk", "[inputs.x]\nshape = [4, 6]\nscale = 4096.0", "scale 0.01", "", "code.constant", "1"),
    Port("normalized", SMALL, "zeros", cause="unknown"),
    Port("masked", SMALL + '\n[inputs.keep]\ndtype = "bool"\nnpz = "keep.npz"', "masks false but at one position",
        cause="masked.filled"),
    Port("padded", IDS, "padding id 0", cause="pooled.masked"),
    Port("squeezed", SMALL, "batch size 1", "shape"),
    Port("fixed", SMALL, "batch size 1", "torch takes them, keras fails"),
    Port("counting", SMALL, "second call"),
    Port("positions", IDS, "length 9 for 8", cause="positions.most"),
    Port("dropping", SMALL, "training mode", "torch drops at the rates 0.25, keras 0.5"),
    Port("centred", SMALL + TRAIN, OTHER_BATCHES, cause="centred.samples", where="1"),
    Port("rows", IDS + TRAIN, OTHER_BATCHES, cause="embedding.padding_idx", where="rows.weight"),
    Port("last", IDS, "integers at their last", cause="last.most"),
]  # fmt: skip


@pytest.fixture(scope="module")
def judge(backends, tmp_path_factory) -> Compared:
    """`judge(torch, keras, inputs)`: a pair of tests/variations recorded and judged."""
    numbers = itertools.count()

    def judged(torch: str, keras: str, inputs: str, varied: bool = True) -> CaseResult:
        folder = tmp_path_factory.mktemp(f"varied{next(numbers)}")
        np.savez(folder / "keep.npz", keep=np.ones((4, 6), bool))
        path = folder / "varied.toml"
        path.write_text(f'[pair]\ntorch = "varied_torch:{torch}"\nkeras = "varied_keras:{keras}"\n{inputs}\n')
        loaded = file.load(path)
        return compared(loaded._replace(search=[*loaded.search, str(MODELS)]), backends, folder, varied)

    return remembered(judged)


@pytest.mark.parametrize("port", sampled((pytest.param(port, id=port.name) for port in PORTS), "centred"))
def test_a_port_that_differs_off_its_inputs(port, judge):
    result = judge(port.name, f"{port.name}_wrong", port.inputs)
    verdicts = {one.name: one.verdict for one in result.variations}
    assert verdicts[port.by] == "diverged", result
    assert result.verdict == "diverged" and result.first_divergence.reason == result.reason
    where = WHERE.get(port.by, "equal on your inputs; differs at")
    assert result.reason.startswith(f"{where} {port.by}: ") and port.says in result.reason
    assert port.cause in ("", *(cause.id for cause in result.causes if cause.where == port.where)), result.causes


# That a right training on other batches matches is also what tests/test_report_schema.py has a report of.
@pytest.mark.parametrize("name", sampled(["clamped", "masked", "centred"], "clamped"))
def test_the_same_port_without_the_difference(name, judge):
    result = judge(name, name, next(port.inputs for port in PORTS if port.name == name))
    assert result.verdict == "match" and {one.verdict for one in result.variations} <= {"match", "skipped"}, result


@pytest.mark.slow
def test_without_variations_the_difference_is_not_reached_and_told(judge):
    result = judge("clamped", "clamped_wrong", SMALL, varied=False)
    assert result.verdict == "match" and result.variations == []
    missed = [(one.branch, one.where) for one in result.coverage.branches if not one.reached]
    assert ("clamp.upper", "1") in missed, missed
    assert ("mode.training", "(model)") in missed
    assert any("upper at 1" in line for line in coverage_lines(result))


def test_a_branch_that_a_variation_reaches_names_it(judge):
    result = judge("clamped", "clamped", SMALL)
    (upper,) = [one for one in result.coverage.branches if one.branch == "clamp.upper" and one.where == "1"]
    assert upper.reached and upper.by == "scale 100"


def test_a_clamp_that_no_variation_reaches_is_told_and_what_the_reference_cannot_compute_fails_nothing(judge):
    result = judge("edges", "edges_wrong", "[inputs.x]\nshape = [4, 6]")
    missed = {one.branch for one in result.coverage.branches if not one.reached}
    assert result.verdict == "match" and "clamp.upper" in missed
    for name, said in (("scale 100", "leave the range of float32"), ("zeros", "NaN")):
        (found,) = [one for one in result.variations if one.name == name]
        assert found.verdict == "inconclusive" and said in found.reason


@pytest.mark.slow
def test_statistics_are_as_they_were_behind_training_mode(judge):
    """Keras's biased variance would part the sides in all that follows."""
    result = judge("batch_norm", "batch_norm", "[inputs.x]\nshape = [4, 6]")
    assert result.verdict == "match", result
    assert ("batch_norm.update", False) in {(one.branch, one.reached) for one in result.coverage.branches}


@pytest.mark.slow
def test_noise_is_shared(judge):
    result = judge("noisy", "noisy", SMALL)
    (training,) = [one for one in result.variations if one.name == "training mode"]
    assert result.verdict == "match" and training.verdict == "match"


@pytest.mark.slow
def test_dropped_channels_of_one_pixel_are_dropped_elements(judge):
    result = judge("channels", "dropping", SMALL)
    (training,) = [one for one in result.variations if one.name == "training mode"]
    assert result.verdict == "match" and training.verdict == "match"


@pytest.mark.parametrize(
    ("torch", "keras", "says"),
    [
        pytest.param("two_branches", "two_branches", "in another order", marks=pytest.mark.slow),
        pytest.param("dropping_twice", "dropping_exchanged", "in another order", marks=pytest.mark.slow),
        pytest.param("alpha", "dropping_wrong", "keras drops at the rates 0.5", marks=pytest.mark.slow),
        pytest.param("alpha", "plain", "keras drops at the rates nothing", marks=pytest.mark.slow),
    ],
)
def test_what_one_side_draws_and_the_other_does_not_is_inconclusive(torch, keras, says, judge):
    result = judge(torch, keras, SMALL)
    (training,) = [one for one in result.variations if one.name == "training mode"]
    assert (result.verdict, training.verdict) == ("inconclusive", "inconclusive"), result
    assert training.reason in result.reason and says in result.reason


@pytest.mark.slow
@pytest.mark.parametrize(("torch", "keras"), [("dropping", "dropping_gauss"), ("fixed", "fixed_noisy")])
def test_noise_of_one_side_is_a_difference_in_training_mode(torch, keras, judge):
    result = judge(torch, keras, SMALL)
    (training,) = [one for one in result.variations if one.name == "training mode"]
    assert (result.verdict, training.verdict) == ("diverged", "diverged"), result


@pytest.mark.slow
def test_what_the_reference_alone_refuses_is_left_out(judge):
    result = judge("limited", "fixed", "[inputs.x]\nshape = [4, 6]")
    (scaled,) = [one for one in result.variations if one.name == "scale 100"]
    assert result.verdict == "match" and scaled.skipped == "keras alone takes them", result
    assert "too large" in scaled.failed["torch"]


@pytest.mark.slow
def test_a_pair_that_diverges_already_is_not_varied(judge):
    result = judge("clamped", "slanted", SMALL)
    assert result.verdict == "diverged" and result.variations == [] and result.coverage is None


def test_the_json_has_both(judge):
    import msgspec

    told = json.loads(msgspec.json.encode(judge("clamped", "clamped", SMALL)))
    assert {"name", "verdict", "reason", "skipped"} <= told["variations"][0].keys()
    assert {"reached", "of", "branches"} == told["coverage"].keys()
    assert {"branch", "where", "reached", "by"} <= told["coverage"]["branches"][0].keys()
