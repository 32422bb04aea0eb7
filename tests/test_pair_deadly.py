"""A value by which the process ends is passed over in the search for a cause: another process goes on."""

from pathlib import Path

import pytest
from judged import causes

from parity.pairs import file
from parity.pairs.causes import experiment
from parity.pairs.compare import compared
from parity.results import CaseResult

TORCH = """
import os
import torch
from torch import nn


class Bump(nn.Module):
    def __init__(self, groups=2, width=1.5):
        super().__init__()
        self.groups, self.width = groups, width

    def forward(self, x):
        if self.groups not in (1, 2):
            os.abort()  # as C++ does where it divides by what is 0
        return x * torch.exp(-torch.square(x) / self.width)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.bump, self.b = nn.Linear(6, 8), Bump(), nn.Linear(8, 3)

    def forward(self, x):
        return self.b(self.bump(self.a(x)))
"""

KERAS = """
import keras
from keras import layers, ops


class Bump(layers.Layer):
    def call(self, x):
        return x * ops.exp(-ops.square(x) / 2.5)


class Model(keras.Model):
    def __init__(self):
        super().__init__()
        self.a, self.bump, self.b = layers.Dense(8), Bump(), layers.Dense(3)

    def call(self, x):
        return self.b(self.bump(self.a(x)))
"""

PAIR = """
[pair]
name = "deadly"
torch = "deadly_torch:Model"
keras = "deadly_keras:Model"
[inputs.x]
shape = [5, 6]
"""


@pytest.fixture
def result(backends, tmp_path: Path) -> CaseResult:
    (tmp_path / "deadly_torch.py").write_text(TORCH)
    (tmp_path / "deadly_keras.py").write_text(KERAS)
    (tmp_path / "deadly.toml").write_text(PAIR)
    return compared(file.load(tmp_path / "deadly.toml", []), backends, tmp_path / "run", varied=False)


def test_the_cause_is_found_although_a_value_ends_the_process(result: CaseResult):
    assert causes(result) == [("bump.width", "bump")]
    assert float(result.causes[0].torch) == 1.5 and float(result.causes[0].keras) == 2.5


@pytest.fixture
def only_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiment, "MOST_ENDS", 0)


@pytest.mark.slow
def test_where_no_further_process_may_end_it_is_told(only_one_process, result: CaseResult):
    assert causes(result) == [("unknown", "bump")]
    assert any("could not be called again: torch: the process ended" in text for text in result.not_compared)
