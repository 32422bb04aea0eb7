"""Ports as functional models, whose code runs only when they are built: faults are named with their line and repaired.

TensorFlow holds the slope of a leaky ReLU in float32, which no port can help: the right port is a subprecision.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from parity.pairs import file
from parity.pairs.compare import compared
from parity.repair.search import Repairing
from parity.results import CaseResult, Repair

TORCH = """
import torch
import torch.nn.functional as F
from torch import nn


class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 6, 3, padding=1)
        self.gate, self.out = nn.Linear(6, 6), nn.Linear(6, 5)

    def forward(self, x):
        x = F.leaky_relu(self.conv(x), 0.1)
        y = F.silu(x) * 0.5 + x
        gate = torch.sigmoid(self.gate(y.mean(dim=(2, 3))))
        y = (y * gate[:, :, None, None]).amax(dim=(2, 3))
        y = y / (y.norm(dim=-1, keepdim=True) + 1e-3)
        return F.log_softmax(self.out(y), dim=-1)
"""
KERAS = """
import math

import keras
from keras import layers, ops


def gated():
    inputs = keras.Input((6, 6, 3))
    x = ops.leaky_relu(layers.Conv2D(6, 3, padding="same")(inputs), 0.1)
    y = ops.silu(x) * math.sqrt(0.25) + x
    gate = ops.sigmoid(layers.Dense(6)(ops.mean(y, axis=(1, 2))))
    y = ops.max(y * gate[:, None, None, :], axis=(1, 2))
    y = y / (ops.norm(y, axis=-1, keepdims=True) + 1e-3)
    return keras.Model(inputs, ops.log_softmax(layers.Dense(5)(y), axis=-1))
"""
PAIR = """
[pair]
torch = "graphs_torch:Gated"
keras = "graphs_keras:gated"

[inputs.x]
shape = [4, 3, 6, 6]
keras_layout = "n c h w -> n h w c"
"""
# What the port has in place of what, the cause, and what an edit puts there: the same, but for a computed number.
FAULTS = [
    pytest.param("(inputs), 0.1)", "(inputs), 0.2)", "relu.slope", "(inputs), 0.1)", id="slope"),
    pytest.param("ops.silu(x)", "ops.gelu(x)", "activation.kind", "ops.silu(x)", id="activation"),
    pytest.param("math.sqrt(0.25)", "math.sqrt(0.36)", "code.constant", "0.5", id="constant"),
    pytest.param("y * gate", "y + gate", "code.operator", "y * gate", id="operator"),
    pytest.param("ops.max(y", "ops.mean(y", "code.function", "ops.max(y", id="function"),
    pytest.param("norm(y, axis=-1", "norm(y, axis=0", "norm.axis", "norm(y, axis=1", id="axis"),
]
Judged = tuple[CaseResult, Callable[[], Repair]]


@pytest.fixture
def judge(backends, tmp_path, monkeypatch) -> Callable[[str, str], Judged]:
    """`judge(right, wrong)`: the pair with a fault in its port, compared, and what repairs it."""

    def run(right: str, wrong: str) -> Judged:
        assert KERAS.count(right) == 1
        folder, traces = tmp_path / "user", tmp_path / "traces"
        folder.mkdir()
        (folder / "graphs_torch.py").write_text(TORCH)
        (folder / "graphs_keras.py").write_text(KERAS.replace(right, wrong))
        (folder / "pair.toml").write_text(PAIR)
        monkeypatch.chdir(folder)
        pair = file.load(Path("pair.toml"))
        result = compared(pair, backends, traces, varied=False)
        repairing = Repairing(pair, backends, tmp_path / "scratch", varied=False)
        return result, lambda: repairing.run(result, traces, tmp_path / "it.diff")

    return run


@pytest.mark.slow
def test_the_right_port_differs_in_what_the_framework_rounds_alone(judge) -> None:
    result, _ = judge("0.1)", "0.1)")
    assert result.verdict == "subprecision"
    assert [cause.id for cause in result.causes] == ["constant.precision"]


@pytest.mark.slow
@pytest.mark.parametrize(("right", "wrong", "cause", "edited"), FAULTS)
def test_a_fault_is_named_with_its_line_and_repaired(right: str, wrong: str, cause: str, edited: str, judge) -> None:
    result, repair = judge(right, wrong)
    lines = KERAS.splitlines()
    number = next(number for number, line in enumerate(lines, 1) if right in line)
    assert [(each.id, each.source) for each in result.causes] == [(cause, f"graphs_keras.py:{number}")]
    done = repair()
    assert [edit.after for edit in done.edits if edit.accepted] == [lines[number - 1].strip().replace(right, edited)]
    assert done.verdict == "subprecision"
