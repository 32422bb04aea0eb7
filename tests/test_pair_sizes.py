"""The size of a weight, which both sides share, is no cause where a term that is computed of it is left out."""

import pytest

from parity.pairs import file
from parity.pairs.compare import compared

TORCH = """
import math

import torch
from torch import nn


class Labeller(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.out = nn.Embedding(20, 8), nn.Linear(8, 3)
        self.width, self.shift = 8, nn.Parameter(torch.rand(8))

    def forward(self, ids):
        return self.out(self.table(ids) * math.sqrt(self.width) + self.shift)
"""
KERAS = """
import keras
from keras import layers


class Labeller(keras.Model):
    def __init__(self):
        super().__init__()
        self.table, self.out = layers.Embedding(20, 8), layers.Dense(3)
        self.shift = self.add_weight(shape=(8,), name="shift")

    def call(self, ids):
        return self.out(self.table(ids) + self.shift)
"""
PAIR = """
[pair]
name = "labeller"
torch = "unscaled_torch:Labeller"
keras = "unscaled_keras:Labeller"

[inputs.ids]
shape = [3, 5]
dtype = "int64"
range = [0, 20]
"""


@pytest.fixture
def pair(tmp_path) -> file.PairFile:
    (tmp_path / "unscaled_torch.py").write_text(TORCH)
    (tmp_path / "unscaled_keras.py").write_text(KERAS)
    (tmp_path / "labeller.toml").write_text(PAIR)
    return file.load(tmp_path / "labeller.toml", [])


@pytest.mark.slow
def test_a_factor_that_is_left_out_is_named_by_its_line(pair, backends, tmp_path):
    (cause,) = compared(pair, backends, tmp_path / "run", varied=False).causes
    assert (cause.id, cause.torch, cause.keras) == ("module.wiring", "*", "the first alone")
    assert "unscaled_torch.py:15" in cause.evidence
