"""What two ports do otherwise at padding is no fault, unless the one that takes it does not mask it."""

from pathlib import Path

import pytest

from parity.pairs import file
from parity.pairs.compare import compared
from parity.runtime.backend import Backend

TORCH = """
import torch
from torch import nn

class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(5, 6)
    def forward(self, x, mask):
        return torch.tanh(self.inner(x)) * mask[..., None]

class Pool(nn.Module):
    def __init__(self):
        super().__init__()
        self.score = nn.Linear(6, 1)
    def forward(self, x, mask):
        score = self.score(x).masked_fill(~mask[..., None], float("-inf"))
        return (score.softmax(1) * x).sum(1)

class build(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.pool, self.head = Encoder(), Pool(), nn.Linear(6, 3)
    def forward(self, x):
        mask = x[..., 0] > -0.5
        return self.head(self.pool(self.encoder(x, mask), mask))
"""
KERAS = """
import keras
from keras import layers, ops

class Encoder(layers.Layer):
    def __init__(self):
        super().__init__()
        self.inner = layers.Dense(6)
    def call(self, x, given):
        return ops.tanh(self.inner(x))

class Pool(layers.Layer):
    def __init__(self):
        super().__init__()
        self.score = layers.Dense(1)
    def call(self, x, given):
        score = self.score(x)
        MASKED
        return ops.sum(ops.softmax(score, axis=1) * x, axis=1)

class build(keras.Model):
    def __init__(self):
        super().__init__()
        self.encoder, self.pool, self.head = Encoder(), Pool(), layers.Dense(3)
    def call(self, x):
        given = x[..., 0] > -0.5
        return self.head(self.pool(self.encoder(x, given), given))
"""
MASKED = 'score = ops.where(given[..., None], score, -float("inf"))'
TOML = '[pair]\nname = "padding"\ntorch = "of_torch:build"\nkeras = "of_keras:build"\n[inputs.x]\nshape = [4, 7, 5]\n'


@pytest.mark.parametrize("masked", [True, False], ids=["masked", "not masked"])
def test_who_does_not_mask_it_is_told(masked: bool, backends: list[Backend], tmp_path: Path) -> None:
    (tmp_path / "of_torch.py").write_text(TORCH)
    (tmp_path / "of_keras.py").write_text(KERAS.replace("MASKED", MASKED if masked else ""))
    (tmp_path / "pair.toml").write_text(TOML)
    result = compared(file.load(tmp_path / "pair.toml"), backends, tmp_path / "traces", varied=False)
    if masked:
        assert result.verdict == "match" and not result.causes
        return
    cause, encoders = result.causes  # with the pool's, the encoder's makes a difference too
    assert (encoders.id, encoders.keras) == ("mask.missing", "left out")
    assert (result.verdict, cause.id, cause.where, cause.torch) == ("diverged", "code.function", "pool", "masked_fill")
    assert any(each.startswith("encoder, pool.score of torch: ") for each in result.assumptions)
