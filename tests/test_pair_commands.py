"""A user's own pair on the command line: what a person does first, and the mistakes that people make."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from slow import WAIT

from parity import compare
from parity.core.errors import UsageError
from parity.pairs.compare import compared
from parity.pairs.file import load

ROOT = Path(__file__).parents[1]
PAIR = """
[pair]
name = "own"
torch = "sides_torch:{torch}"
keras = "sides_keras:{keras}"
[inputs.x]
shape = [4, 6]
{more}
"""
TORCH = """
import torch
from torch import nn


def build():
    return nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 3))


def narrow():
    return nn.Sequential(nn.Linear(6, 2))


def raising():
    raise RuntimeError("no such checkpoint")


def number():
    return 3


def setting():
    torch.set_grad_enabled(False)
    return build()
"""
KERAS = """
import keras


def build():
    return keras.Sequential([keras.layers.Dense(6), keras.layers.Activation("tanh"), keras.layers.Dense(3)])


class Failing(keras.Model):
    def call(self, x):
        raise ValueError("not this way")


def failing():
    return Failing()


def setting():
    keras.config.set_epsilon(0.1)
    return build()


class Normed(keras.Sequential):
    def call(self, x):
        return super().call(x * (1 + keras.config.epsilon() - 1e-7))


def normed():
    return Normed(build().layers)
"""


@pytest.fixture
def pair(tmp_path):
    """Writes a pair's file beside two modules; gives its path."""
    (tmp_path / "sides_torch.py").write_text(TORCH)
    (tmp_path / "sides_keras.py").write_text(KERAS)

    def written(torch: str = "build", keras: str = "build", more: str = "") -> Path:
        path = tmp_path / "own.toml"
        path.write_text(PAIR.format(torch=torch, keras=keras, more=more))
        return path

    return written


def ended(folder: Path, *arguments: object, program: str = "compare") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", f"parity.{program}", *map(str, arguments)]
    environment = {"PATH": "", "PYTHONPATH": str(ROOT), "HOME": str(folder)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=WAIT)


@pytest.mark.slow
def test_sides_are_recorded_apart_and_compared(pair, tmp_path):
    path = pair(more="[train]\nsteps = 2\n")
    early = ended(tmp_path, "--backend=keras", f"--pair={path}", "--out=apart", program="record")
    assert early.returncode == 2 and "record torch first" in early.stderr
    for side in ("torch", "keras"):
        recorded = ended(tmp_path, f"--backend={side}", f"--pair={path}", "--out=apart", program="record")
        assert recorded.returncode == 0, recorded.stderr
    own = tmp_path / "apart" / "pair" / "own"
    compared = ended(tmp_path, own / "torch", own / "keras", "--json=-", "--strict")
    assert compared.returncode == 0, compared.stderr
    (case,) = json.loads(compared.stdout)["cases"]
    assert (case["case"], case["verdict"]) == ("pair/own", "match")
    assert case["checks"]["parameter"]["compared"] == 4 * 3  # initial, and after each of two steps


@pytest.mark.usefixtures("forks")
def test_flags_make_a_pair_and_the_mapping_is_printed(pair, tmp_path, monkeypatch, capsys):
    pair()
    monkeypatch.chdir(tmp_path)
    flags = ["--torch=sides_torch:build", "--keras=sides_keras:build", "--input=x=float32[4,6]"]
    assert compare.main([*flags, "--mapping"]) == 0
    printed = capsys.readouterr().out
    assert "0.weight" in printed and "dense/kernel" in printed
    assert "[[weights]]" in printed


@pytest.mark.slow
def test_a_pair_that_cannot_be_mapped_or_built_stops_no_other(pair, tmp_path):
    for name, torch in (("narrow", "narrow"), ("raising", "raising"), ("good", "build")):
        text = pair(torch).read_text().replace('name = "own"', f'name = "{name}"')
        (tmp_path / f"{name}.toml").write_text(text)
    flags = [f"--pair={name}.toml" for name in ("narrow", "raising", "good")]
    found = ended(tmp_path, *flags, "--mapping", "--json=report")
    report = json.loads((tmp_path / "report").read_text())
    assert [(case["case"], case["verdict"], case["error"]) for case in report["cases"]] == [
        ("pair/narrow", "error", "usage"), ("pair/raising", "error", "backend"), ("pair/good", "match", ""),
    ]  # fmt: skip
    assert found.returncode == 3, found.stderr
    assert "weights of pair/narrow:\ntorch: 0.weight [2, 6] (not found)" in found.stdout
    assert report["cases"][0]["mapping"]["unplaced"]
    assert "weights of pair/good:\n0.weight: o i -> i o" in found.stdout


@pytest.mark.slow
def test_what_a_pair_sets_for_a_whole_process_does_not_reach_the_next(pair, tmp_path):
    names = ("setting", "normed")
    for name, torch in zip(names, ("setting", "build"), strict=True):
        (tmp_path / f"{name}.toml").write_text(pair(torch, name).read_text().replace('"own"', f'"{name}"'))
    found = ended(tmp_path, *(f"--pair={name}.toml" for name in names), "--no-vary", "--json=report")
    first, second = json.loads((tmp_path / "report").read_text())["cases"]
    assert second["verdict"] == "match", found.stdout
    assert first["verdict"] == "diverged"  # torch has no gradients here


@pytest.mark.parametrize(
    ("torch", "keras", "more", "said"),
    [
        ("narrow", "build", "", "0.weight"),  # weights without a counterpart, with their candidates
        ("built", "build", "", "sides_torch has no 'built' (did you mean 'build'?)"),
        ("number", "build", "", "received int"),
        ("build", "build", "torch = 'y'", "'y'"),
    ],
)
def test_a_mistake_in_the_file_is_said(torch, keras, more, said, pair, backends, tmp_path):
    with pytest.raises(UsageError) as error:
        compared(load(pair(torch, keras, more)), backends, tmp_path / "traces")
    assert said in str(error.value)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("torch", "keras", "said"),
    [("raising", "build", "no such checkpoint, at "), ("build", "failing", "not this way, at ")],
)
def test_a_model_that_raises_is_an_error_with_its_line(torch, keras, said, pair, backends, tmp_path):
    result = compared(load(pair(torch, keras)), backends, tmp_path / "traces")
    assert result.verdict == "error" and said in result.reason and "Traceback" not in result.reason
    assert f"again: python -m parity.compare --pair={tmp_path}" in result.reason


@pytest.mark.slow
def test_accept_writes_into_the_file_and_then_it_matches(tmp_path):
    for name in ("lstm_torch.py", "lstm_keras.py", "lstm_trained.toml"):
        shutil.copy(ROOT / "tests" / "pairs" / name, tmp_path)
    path = tmp_path / "lstm_trained.toml"
    before = path.read_text()
    first = ended(tmp_path, f"--pair={path}", "--accept", "--json=-")
    assert first.returncode == 1, first.stderr
    (case,) = json.loads(first.stdout)["cases"]
    (section,) = [each["toml"] for each in case["suggestions"]]
    assert path.read_text() == f"{before}\n{section}"
    assert f"added to {path}" in first.stderr and section in first.stderr
    second = ended(tmp_path, f"--pair={path}", "--accept", "--strict")
    assert second.returncode == 0 and "accepted: weights.sum at lstm.bias_hh_l0" in second.stdout, second.stderr
    assert path.read_text() == f"{before}\n{section}"


@pytest.mark.slow
def test_a_file_that_cannot_be_written_costs_no_other_pair_its_report(tmp_path):
    for name in ("lstm_torch.py", "lstm_keras.py", "lstm_trained.toml"):
        shutil.copy(ROOT / "tests" / "pairs" / name, tmp_path)
    good, odd = tmp_path / "lstm_trained.toml", tmp_path / "odd.toml"
    odd.write_text("expect = []\n" + good.read_text().replace("lstm_trained", "odd"))
    before = odd.read_text()
    found = ended(tmp_path, f"--pair={odd}", f"--pair={good}", "--accept", "--no-vary", "--json=-")
    assert found.returncode == 1, found.stderr
    assert [case["case"] for case in json.loads(found.stdout)["cases"]] == ["pair/odd", "pair/lstm_trained"]
    (line,) = [line for line in found.stderr.splitlines() if "cannot be added to" in line]
    assert line.startswith(f"pair/odd: --accept: {odd}") and odd.read_text() == before
    assert "[[expect]]" in good.read_text()
