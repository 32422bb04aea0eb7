"""Ports with planted faults, repaired: which edits are accepted, and what the diff makes of the user's files."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from parity.pairs import file
from parity.pairs.compare import compared
from parity.repair.search import Repairing
from parity.results import Repair

TORCH = """
import torch
from torch import nn


def norms(first=1e-5, second=1e-5):
    return nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8, first), nn.Linear(8, 8), nn.LayerNorm(8, second))


def relu():
    return nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, 3))


def gelu():
    return nn.Sequential(nn.Linear(6, 8), nn.GELU("tanh"), nn.Linear(8, 3))


def batch():
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))


def dropout():
    return nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.25), nn.Linear(8, 3))


def linear():
    return nn.Sequential(nn.Linear(6, 3))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.out = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 3)
        self.factor = 0.25

    def forward(self, x):
        h = self.factor * torch.nn.functional.silu(self.first(x))
        h = h + self.second(h).tanh()
        return self.out(h)


def block():
    return Block()


def descent(parameters):
    return torch.optim.SGD(parameters, lr=0.0625)
"""
KERAS = """
import keras
from keras import layers

EPS = 1e-3
CONFIG = {"epsilon": 1e-3, "units": 8}


def shared():
    norm = layers.LayerNormalization
    return keras.Sequential([layers.Dense(8), norm(epsilon=EPS), layers.Dense(8), norm(epsilon=EPS)])


def configured():
    norms = [layers.LayerNormalization(epsilon=CONFIG["epsilon"]) for _ in range(2)]
    return keras.Sequential([layers.Dense(CONFIG["units"]), norms[0], layers.Dense(8), norms[1]])


def fed(epsilon):
    return keras.Sequential(
        [
            layers.Dense(8),
            layers.LayerNormalization(epsilon=epsilon),
            layers.Dense(8),
            layers.LayerNormalization(epsilon=epsilon),
        ]
    )


def both():
    return keras.Sequential(
        [layers.Dense(8), layers.LayerNormalization(), layers.ReLU(negative_slope=0.25), layers.Dense(3)]
    )


def gelu():
    return keras.Sequential([layers.Dense(8), layers.Activation("gelu"), layers.Dense(3)])


class Norm(layers.Layer):
    def __init__(self, momentum=0.9, **kwargs):
        super().__init__(**kwargs)
        self.momentum = momentum

    def build(self, shape):
        self.norm = layers.BatchNormalization(momentum=self.momentum, epsilon=1e-5)

    def call(self, x, training=False):
        return self.norm(x, training=training)


def batch():
    return keras.Sequential([layers.Dense(8), Norm(momentum=0.5), layers.Dense(3)])


def dropout(rate=0.5):
    return keras.Sequential([layers.Dense(8), layers.Dropout(rate), layers.Dense(3)])


def linear():
    return keras.Sequential([layers.Dense(3)])


class Block(keras.Model):
    def __init__(self, width=4):
        super().__init__()
        self.first, self.second, self.out = layers.Dense(6), layers.Dense(6), layers.Dense(3)
        self.factor = 1 / width

    def call(self, x):
        h = self.factor * keras.activations.silu(self.first(x))
        h = h + keras.ops.tanh(self.second(h))
        return self.out(h)


def block():
    return Block()


def descent():
    return keras.optimizers.SGD()
"""
TOML = """
[pair]
name = "repaired"
torch = "ports_torch:{torch}"
keras = "ports_keras:{keras}"
{more}
[inputs.x]
shape = [8, 6]
{train}
"""
SGD = "[train]\nsteps = 2\n"
OWN = '[train]\nsteps = 2\ntorch_optimizer = "ports_torch:descent"\nkeras_optimizer = "ports_keras:descent"\n'


class Repaired(NamedTuple):
    """What a repair has done, and the user's folder, in which nothing else may have changed."""

    repair: Repair
    folder: Path
    diff: Path

    @property
    def accepted(self) -> list[tuple[str, str]]:
        return [(edit.before, edit.after) for edit in self.repair.edits if edit.accepted]

    @property
    def refused(self) -> list[str]:
        return [edit.why for edit in self.repair.edits if not edit.accepted]


@pytest.fixture
def repaired(backends, tmp_path, monkeypatch) -> Callable[..., Repaired]:
    """`repaired(torch, keras)`: compares the two builders, and repairs the port, in which a fault is planted."""

    def run(torch: str, keras: str, more: str = "", train: str = "", fault: tuple[str, str] = ("", "")) -> Repaired:
        folder = tmp_path / "user"
        folder.mkdir()
        (folder / "ports_torch.py").write_text(TORCH)
        assert fault[0] in KERAS
        (folder / "ports_keras.py").write_text(KERAS.replace(*fault))
        (folder / "pair.toml").write_text(TOML.format(torch=torch, keras=keras, more=more, train=train))
        before = {path: path.read_bytes() for path in folder.iterdir()}
        monkeypatch.chdir(folder)
        pair, diff = file.load(Path("pair.toml")), tmp_path / "it.diff"
        result = compared(pair, backends, tmp_path / "traces", varied=False)
        assert result.verdict in ("diverged", "subprecision"), result
        repair = Repairing(pair, backends, tmp_path / "scratch", varied=False).run(result, tmp_path / "traces", diff)
        assert {path: path.read_bytes() for path in before} == before
        return Repaired(repair, folder, diff)

    return run


def apply(done: Repaired) -> None:
    subprocess.run(["git", "apply", str(done.diff)], cwd=done.folder, check=True)


@pytest.mark.slow
def test_a_constant_that_is_right_elsewhere_is_left_and_the_argument_is_changed(repaired):
    done = repaired("norms", "shared", more="torch_kwargs = { second = 1e-3 }")
    assert done.refused == ["it brings in layer_norm.epsilon at 3"]
    ((before, after),) = done.accepted
    assert after == before.replace("epsilon=EPS", "epsilon=1e-5", 1)
    assert done.repair.verdict == "match" and not done.repair.left


@pytest.mark.slow
def test_a_value_from_a_config_is_changed_there_for_all(repaired):
    done = repaired("norms", "configured")
    assert done.accepted == [('CONFIG = {"epsilon": 1e-3, "units": 8}', 'CONFIG = {"epsilon": 1e-5, "units": 8}')]
    assert done.repair.verdict == "match" and not done.refused
    assert done.repair.edits[0].where == "1 and 1 more"


@pytest.mark.slow
def test_a_value_from_the_pair_s_file_is_changed_there_and_the_diff_applies(repaired):
    done = repaired("norms", "fed", more="keras_kwargs = { epsilon = 1e-3 }")
    assert done.repair.verdict == "match"
    text = (done.folder / "pair.toml").read_text()
    assert done.diff.read_text().startswith(
        "# pair.toml:6: layer_norm.epsilon at 1 and 1 more: torch 1e-05, keras 0.001\n"
    )
    apply(done)
    assert (done.folder / "pair.toml").read_text() == text.replace("1e-3", "1e-5")


def test_two_faults_at_once_are_repaired_in_one_run(repaired):
    done = repaired("relu", "both")
    (_, _), *others = done.accepted
    assert [edit.cause for edit in done.repair.edits] == ["layer_norm.epsilon", "relu.slope"] and not done.refused
    assert done.repair.verdict == "match" and others
    apply(done)
    assert "LayerNormalization(epsilon=1e-5), layers.ReLU(negative_slope=0.0)" in (
        done.folder / "ports_keras.py"
    ).read_text().replace("\n", "")


@pytest.mark.slow
def test_gelu_s_form_is_passed_as_a_function(repaired):
    done = repaired("gelu", "gelu")
    assert done.accepted[0][1].count("lambda x: keras.activations.gelu(x, approximate=True)") == 1


@pytest.mark.slow
def test_what_an_object_keeps_for_later_is_changed_where_it_was_given_and_the_rest_is_left(repaired):
    """The layer is made in build(), with what __init__ was given; the variance's form has no argument."""
    done = repaired("batch", "batch", train=SGD)
    assert "Norm(momentum=0.9)" in done.accepted[0][1]
    assert done.repair.left == ["batch_norm.running_variance at 1: no argument of Keras's sets it"]
    assert done.repair.verdict == "diverged"


@pytest.mark.slow
def test_a_default_is_changed(repaired):
    done = repaired("dropout", "dropout", train=SGD)
    assert done.accepted == [("def dropout(rate=0.5):", "def dropout(rate=0.25):")]


@pytest.mark.slow
def test_an_argument_of_the_optimizer_is_added(repaired):
    done = repaired("linear", "linear", train=OWN)
    assert done.accepted[0][1] == "return keras.optimizers.SGD(learning_rate=0.0625)"
    assert done.repair.verdict == "match"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("right", "wrong", "repair"),
    [
        ("keras.activations.silu(self.first(x))", "self.first(x)", "keras.activations.silu(self.first(x))"),
        ("h + keras.ops.tanh(self.second(h))", "h + self.second(h)", "h + keras.activations.tanh(self.second(h))"),
        ("h = h + keras.ops.tanh", "h = keras.ops.tanh", "h = h + keras.ops.tanh"),
        ("self.factor * keras", "keras", "0.25 * keras"),
        ("1 / width", "1.0 * width", "1 / (1.0 * width)"),
    ],
    ids=["function", "inner function", "residual", "factor", "attribute"],
)
def test_what_the_port_has_forgotten_is_put_in(right, wrong, repair, repaired):
    done = repaired("block", "block", fault=(right, wrong))
    assert done.repair.verdict == "match", done.repair
    assert repair in done.accepted[0][1]
