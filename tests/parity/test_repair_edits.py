"""The parts of a repair that need no models: arguments of causes, edits, the copy, the diff, and the decision."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from causes_made import made

from parity.repair.edit import ARGUMENTS, TANH, copy_folder, diff_of, settings, spliced, with_argument
from parity.repair.search import decide
from parity.repair.source import Span
from parity.results import CaseResult, Cause, Variation

DOCUMENTED = (Path(__file__).parents[2] / "docs" / "causes.md").read_text()
TOML = '[pair]\nname = "x"  # epsilon = 1\ntorch = "a:b"\nkeras = "c:d"\n{more}[inputs.x]\nshape = [2]\n'


def test_every_argument_belongs_to_a_documented_cause() -> None:
    assert set(ARGUMENTS) <= set(re.findall(r"`([\w.]+)`", DOCUMENTED))


@pytest.mark.parametrize(
    ("cause", "expected"),
    [
        (made("layer_norm.epsilon", torch=1e-5, keras=1e-3), [(1e-3, 1e-5)]),
        (made("batch_norm.momentum", torch=0.1, keras=0.01), [(0.99, 0.9)]),
        (made("gelu.form", torch="tanh", keras="exact"), [(False, True), ("gelu", TANH)]),
        (made("linear.activation", torch="identity", keras="relu"), [("relu", None)]),
        (made("layer_norm.weight", torch="applied", keras="left out"), [(False, True)]),
        (made("conv2d.padding", torch=[1, 1, 1, 1], keras=[0, 0, 0, 0]), [("valid", "same")]),
        (made("module.wiring", torch="a", keras="b"), []),
        (made("unknown", torch=None, keras=None), []),
    ],
)
def test_a_cause_s_values_in_keras_s_terms(cause: Cause, expected: list[tuple[Any, Any]]) -> None:
    assert [(setting.old, setting.new) for setting in settings(cause)] == expected


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ("keras_kwargs = { a = 1, epsilon = 1e-3 }\n", "keras_kwargs = { a = 1, epsilon = 1e-5 }\n"),
        ("kwargs = { epsilon = 1e-3 }\n", "kwargs = { epsilon = 1e-3 }\n"),  # for both sides: Keras gets its own
        ("kwargs.epsilon = 1e-3\nkeras_kwargs = { a = 1 }\n", "keras_kwargs = { epsilon = 1e-5, a = 1 }\n"),
        ("[pair.keras_kwargs]\nepsilon = 1e-3  # why\n", "epsilon = 1e-5  # why\n"),
    ],
)
def test_an_argument_in_the_pair_s_file(more: str, expected: str) -> None:
    text = with_argument(TOML.format(more=more), "epsilon", 1e-5)
    assert text is not None and expected in text
    if more.startswith("kwargs"):
        assert "keras_kwargs = { epsilon = 1e-5" in text


def test_an_argument_that_the_file_does_not_give_is_not_added() -> None:
    assert with_argument(TOML.format(more=""), "epsilon", 1e-5) is None


def test_edits_that_overlap_are_refused() -> None:
    assert spliced(b"abcd", [(Span(0, 1), "x"), (Span(1, 2), "y")]) == b"xycd"
    with pytest.raises(ValueError, match="overlap"):
        spliced(b"abcd", [(Span(0, 2), "x"), (Span(1, 3), "y")])


@pytest.mark.parametrize("program", [["git", "apply"], ["patch", "-s", "-p1", "-i"]])
def test_the_diff_makes_the_user_s_files_what_the_copy_has(program: list[str], tmp_path: Path) -> None:
    root, folder, patch = tmp_path / "user", tmp_path / "copy", tmp_path / "it.diff"
    (root / "deep" / "__pycache__").mkdir(parents=True)
    (root / "port.py").write_bytes(b"a = 1\r\nb = 2\r\n")
    (root / "deep" / "other.py").write_bytes("c = 'é'\nd = 4".encode())
    (root / "deep" / "data.bin").write_bytes(b"\0")
    changed = {Path("port.py"): b"a = 1\r\nb = 3\r\n", Path("deep/other.py"): "c = 'é'\nd = 5".encode()}
    copy_folder(root, folder, changed)
    assert (folder / "deep" / "data.bin").is_symlink() and not (folder / "deep" / "__pycache__").exists()
    assert {path: (folder / path).read_bytes() for path in changed} == changed
    assert (root / "port.py").read_bytes() == b"a = 1\r\nb = 2\r\n"
    patch.write_bytes(diff_of(root, changed, ["port.py:2: a reason"]).encode())
    assert patch.read_text().startswith("# port.py:2: a reason\n--- a/deep/other.py\n")
    subprocess.run([*program, str(patch)], cwd=root, check=True)
    assert {path: (root / path).read_bytes() for path in changed} == changed


def result(*causes: tuple[str, str], verdict: Any = "diverged", **fields: Any) -> CaseResult:
    entries = [Cause(id=name, where=where, torch=1, keras=2) for name, where in causes]
    return CaseResult(case="pair/x", verdict=verdict, causes=entries, **fields)


A, B, UNKNOWN = ("layer_norm.epsilon", "a"), ("relu.slope", "b"), ("unknown", "c")


@pytest.mark.parametrize(
    ("after", "outcome", "why"),
    [
        (result(verdict="match"), "accepted", ""),
        (result(B), "accepted", ""),
        (result(A), "refused", "layer_norm.epsilon at a is still there"),
        (result(B, ("relu.cap", "d")), "refused", "it brings in relu.cap at d"),
        (result(B, ("unknown", "a")), "refused", "it brings in unknown at a"),
        (result(B, UNKNOWN), "uncertain", "behind it is unknown at c"),
        (CaseResult(case="x", verdict="error", reason="no\nmore"), "refused", "the port no longer runs: no"),
    ],
)
def test_judgements(after: CaseResult, outcome: str, why: str) -> None:
    found = decide(result(A, B), after, {A})
    assert found.outcome == outcome and why in found.why


def test_a_variation_that_passed_must_go_on_passing() -> None:
    before, after = (
        result(*causes, verdict=verdict, variations=[Variation(name="zeros", verdict=verdict)])
        for causes, verdict in (((A,), "subprecision"), ((), "diverged"))
    )
    assert decide(before, after, {A}).why == "the pair now diverges on zeros"
