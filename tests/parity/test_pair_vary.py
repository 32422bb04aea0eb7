"""Which variations follow from a description of inputs, what counts as reached, and how both are told."""

from pathlib import Path

import numpy as np
import pytest

from parity import compare as command
from parity.core.arrays import Array, digest, reproduced
from parity.pairs import file
from parity.pairs.file import PairFile
from parity.pairs.vary.coverage import Observer, Seen, covered, in_torch_names
from parity.pairs.vary.variations import GIVEN, Variation, variations
from parity.report.words import coverage_lines
from parity.results import Branch, CaseResult, Coverage
from parity.results import Variation as VariationResult
from parity.runtime import survey
from parity.subjects import run as pair
from parity.trace.mapping import Match, Matching


def varied(tmp_path: Path, text: str, few: bool = False) -> dict[str, Variation]:
    path = tmp_path / "pair.toml"
    path.write_text(f'[pair]\ntorch = "a:b"\nkeras = "c:d"\n{text}')
    loaded = file.load(path)
    return {one.name: one for one in variations(loaded.case, loaded.search, few)}


def test_floats(tmp_path: Path) -> None:
    found = varied(tmp_path, "[inputs.x]\nshape = [4, 6]")
    given = found[GIVEN].inputs["x"]
    assert next(iter(found)) == GIVEN and found["training mode"].training and not found["second call"].training
    assert found["batch size 1"].inputs["x"].shape == (1, 6) and found["batch size 3"].inputs["x"].shape == (3, 6)
    assert [found[f"length {size} for 6"].inputs["x"].shape for size in (5, 7, 12)] == [(4, 5), (4, 7), (4, 12)]
    assert found["length 5 for 6"].may_fail == ("torch", "keras") and found["batch size 1"].may_fail == ()
    assert found["zeros"].may_fail == found["scale 100"].may_fail == ("torch",)
    assert np.array_equal(found["scale 100"].inputs["x"], given * 100) and not found["zeros"].inputs["x"].any()
    assert not np.array_equal(found["another seed"].inputs["x"], given)
    assert not any(name.startswith(("integers", "masks", "padding")) for name in found)


def test_a_large_model_is_called_less_often(tmp_path: Path) -> None:
    text = "[inputs.x]\nshape = [4, 6, 8]"
    every, few = varied(tmp_path, text), varied(tmp_path, text, few=True)
    left_out = every.keys() - few.keys()
    assert left_out and all(name.startswith(("batch size", "length")) for name in left_out)
    assert [name for name in few if name.startswith(("batch size", "length"))] == ["batch size 1", "length 5 for 6"]
    assert few["scale 100"].inputs["x"].shape == (1, 6, 8)
    weights = [
        survey.Weight(name="w", shape=(1 << 12, n), dtype="float32", module="", role="w", trainable=True)
        for n in (1 << 13, 1 << 14)
    ]
    assert [survey.Survey(side="torch", modules=[], weights=[each], called=[]).is_large for each in weights] == [
        False,
        True,
    ]


def test_integers(tmp_path: Path) -> None:
    found = varied(tmp_path, '[inputs.ids]\nshape = [2, 5]\ndtype = "int32"\nrange = [3, 9]')
    assert found["integers at their first"].inputs["ids"].tolist() == [[8, 3, 3, 3, 3]] * 2
    assert (found["integers at their last"].inputs["ids"] == 8).all()
    padded = found["padding id 0"].inputs["ids"]
    assert (padded[:, :4] >= 3).all() and not padded[:, 4:].any() and found["padding id 0"].may_fail
    assert not any(name.startswith(("scale", "zeros", "masks")) for name in found)


@pytest.mark.parametrize("mask", ['dtype = "bool"', 'dtype = "int32"\nrange = [0, 2]', 'dtype = "int64"'])
def test_masks(tmp_path: Path, mask: str) -> None:
    found = varied(tmp_path, f"[inputs.x]\nshape = [2, 5]\n[inputs.keep]\nshape = [2, 5]\n{mask}")
    but_one = found["masks false but at one position"].inputs
    assert found["masks all true"].inputs["keep"].all()
    assert but_one["keep"].tolist() == [[1, 0, 0, 0, 0]] * 2 and np.array_equal(but_one["x"], found[GIVEN].inputs["x"])
    assert not any(name.startswith(("integers", "padding")) for name in found)
    assert found["length 6 for 5"].inputs["x"].shape == found["length 6 for 5"].inputs["keep"].shape == (2, 6)


def test_dimensions_of_one_size_are_also_varied_one_at_a_time(tmp_path: Path) -> None:
    found = varied(tmp_path, "[inputs.x]\nshape = [2, 6, 6]\n[inputs.keep]\nshape = [2, 6]")
    shapes = {name: tuple(one.inputs[each].shape for each in ("x", "keep")) for name, one in found.items()}
    assert shapes["length 7 for 6"] == ((2, 7, 7), (2, 7))
    assert shapes["length 7 for 6 along axis 1 of x"] == ((2, 7, 6), (2, 7))
    assert shapes["length 7 for 6 along axis 2 of x"] == ((2, 6, 7), (2, 7))


def test_a_file_keeps_its_values(tmp_path: Path) -> None:
    x = np.arange(12.0).reshape(2, 6)
    np.savez(tmp_path / "x.npz", x=x, ids=np.array([[4, 9], [5, 7]]))
    inputs = '[inputs.x]\nnpz = "x.npz"\n[inputs.ids]\nnpz = "x.npz"\ndtype = "int64"'
    found = varied(tmp_path, inputs)
    assert np.array_equal(found["batch size 1"].inputs["x"], x[:1])
    assert np.array_equal(found["batch size 3"].inputs["x"], x[[0, 1, 0]])
    expected = {GIVEN, "model(x)", "second call", "training mode", "batch size 1", "batch size 3", "batch size 4"}
    assert found.keys() == expected | {"scale 0.01", "scale 100", "zeros", "the other sign"}
    assert np.array_equal(found["the other sign"].inputs["x"], -x)


def test_what_is_equal_to_the_inputs_given_is_not_run_again(tmp_path: Path) -> None:
    found = varied(tmp_path, "[inputs.x]\nshape = [1, 6]")
    assert "batch size 1" not in found and "batch size 3" in found
    alike = ("model(x)", "second call", "training mode")
    digests = [digest(one.inputs.items()) for name, one in found.items() if name not in alike]
    assert len(digests) == len(set(digests))


def reached(observer: Observer) -> dict[str, bool]:
    return {one.branch: one.reached for one in observer.branches()}


def test_a_module_that_is_called_twice_has_its_branches_once() -> None:
    observer = Observer()
    for x in (-1.0, 1.0):
        observer.kinks("relu", "act", np.array([x]), 0.0)
    assert reached(observer) == {"relu.lower": True, "relu.inside": True}
    assert observer.branches() == []  # they were forgotten


def test_coverage_names_what_reached_a_branch_first() -> None:
    low, high = Seen("relu6.upper", "act", False), Seen("relu6.upper", "act", True)
    found = covered([("inputs", [low]), ("scale 100", [high]), ("zeros", [high, Seen("mask.true", "(model)", False)])])
    assert (found.reached, found.of) == (1, 2)
    assert found.branches[0] == Branch(branch="relu6.upper", where="act", reached=True, by="scale 100")


def test_branches_of_keras_are_told_under_torch_names() -> None:
    matching = Matching(matches=[Match(torch="act", keras="re_lu", axes=[0, 1], by="order")])
    seen = [Seen("relu.lower", where, True) for where in ("re_lu", "other", "(model)", "inputs.keep")]
    assert [one.where for one in in_torch_names(seen, matching)] == ["act", "keras: other", "(model)", "inputs.keep"]


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (np.array([1.0, 2.0]), np.array([1.0, 2.0 + 1e-9]), True),
        (np.array([1.0, 2.0]), np.array([1.0, 2.0 + 1e-5]), False),
        (np.array([1, 2]), np.array([1, 3]), False),
        (np.array([np.inf, 2.0]), np.array([np.inf, 2.0]), True),
        (np.zeros(2), np.zeros(3), False),
    ],
)
def test_what_is_reproduced(one: Array, other: Array, expected: bool) -> None:
    assert reproduced(one, other) is expected


def test_the_lines_of_the_report() -> None:
    variations = [
        VariationResult(name="second call", verdict="match"),
        VariationResult(name="zeros", verdict="inconclusive", reason="torch's outputs are NaN"),
        VariationResult(name="batch size 1", verdict="diverged", reason="keras fails"),
        *(
            VariationResult(name=f"length {size} for 6", verdict="skipped", skipped="both fail")
            for size in (5, 7, 12, 13)
        ),
    ]
    missed = [Branch(branch="relu6.upper", where=where) for where in ("a", "b", "c", "d")]
    coverage = Coverage(reached=1, of=5, branches=[Branch(branch="x", where="y", reached=True), *missed])
    case = CaseResult(case="pair/p", verdict="diverged", variations=variations, coverage=coverage)
    assert list(coverage_lines(case)) == [
        "7 variations: 1 match, 1 inconclusive, 1 diverged, "
        "4 left out (length 5 for 6, length 7 for 6, length 12 for 6 and 1 more: both fail)",
        "  zeros: inconclusive: torch's outputs are NaN",
        "  batch size 1: diverged: keras fails",
        "coverage: 1 of 5 branches; not reached: relu6.upper at a, b, c and 1 more",
    ]
    assert list(coverage_lines(CaseResult(case="two_linear/single", verdict="match"))) == []


def test_variations_that_could_not_be_run_are_told() -> None:
    failed = [VariationResult(name="all", verdict="skipped", skipped="keras: the process ended with status -11")]
    case = CaseResult(case="pair/p", verdict="match", variations=failed)
    assert list(coverage_lines(case)) == ["no variations: keras: the process ended with status -11"]


@pytest.mark.parametrize(
    ("flags", "expected"), [([], True), (["--vary"], True), (["--no-vary"], False), (["--record=full"], True)]
)
def test_the_flag(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, flags: list[str], expected: bool) -> None:
    path = tmp_path / "pair.toml"
    path.write_text('[pair]\ntorch = "a:b"\nkeras = "c:d"\n[inputs.x]\nshape = [2, 3]')
    asked = []

    def compared(file: PairFile, backends: object, folder: Path, varied: bool, whole: bool) -> CaseResult:
        asked.append((varied, whole))
        return CaseResult(case=file.case.name, verdict="error")

    monkeypatch.setattr(pair, "compared", compared)
    command.main([f"--pair={path}", "--quiet", *flags])
    assert asked == [(expected, "--record=full" in flags)]
