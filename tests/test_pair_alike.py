"""A layer behind a difference is asked with what the other side's was given: the same fault, another one, or none."""

from collections.abc import Callable

import pytest
from judged import causes

from parity.pairs import file
from parity.pairs.compare import compared
from parity.results import CaseResult

TORCH = """
import torch
from torch import nn


class Bump(nn.Module):
    def __init__(self, width=1.5):
        super().__init__()
        self.width = width

    def forward(self, x):
        return x * torch.exp(-torch.square(x) / self.width)


class Gate(nn.Module):
    def forward(self, x, y):
        return torch.tanh(x) * torch.sigmoid(y * y)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 3)
        self.first, self.second, self.gate = Bump(), Bump(), Gate()

    def forward(self, x):
        x = self.first(self.a(x))
        y = self.second(self.b(x))
        return self.c(self.gate(x, y))
"""

KERAS = """
import keras
from keras import layers, ops


class Bump(layers.Layer):
    def __init__(self, width=1.5, **more):
        super().__init__(**more)
        self.width = width

    def call(self, x):
        return x * ops.exp(-ops.square(x) / self.width)


class Gate(layers.Layer):
    def call(self, x, y):
        return ops.tanh(x) * ops.sigmoid(y * y)


class Model(keras.Model):
    def __init__(self, first=1.5, second=1.5):
        super().__init__()
        self.a, self.b, self.c = layers.Dense(8), layers.Dense(8), layers.Dense(3)
        self.first, self.second, self.gate = Bump(first), Bump(second), Gate()

    def call(self, x):
        x = self.first(self.a(x))
        y = self.second(self.b(x))
        return self.c(self.gate(x, y))
"""

PAIR = """
[pair]
name = "alike"
torch = "alike_torch:Model"
keras = "alike_keras:Model"
[inputs.x]
shape = [5, 6]
"""


@pytest.fixture(scope="module")
def judge(backends, tmp_path_factory) -> Callable[..., CaseResult]:
    folder = tmp_path_factory.mktemp("alike")
    (folder / "alike_torch.py").write_text(TORCH)
    (folder / "alike_keras.py").write_text(KERAS)
    (folder / "alike.toml").write_text(PAIR)

    def judged(*changes: str) -> CaseResult:
        overrides = [f"pair.keras_kwargs.{change}" for change in changes]
        return compared(file.load(folder / "alike.toml", overrides), backends, folder / "run", varied=False)

    return judged


@pytest.mark.parametrize(
    ("changes", "places"),
    [
        pytest.param((), [], marks=pytest.mark.slow),
        (("first=2.5",), ["first"]),  # the gate and the other bump only follow
        pytest.param(("first=2.5", "second=2.5"), ["first", "second"], marks=pytest.mark.slow),
        pytest.param(("first=2.5", "second=0.5"), ["first", "second"], marks=pytest.mark.slow),
    ],
)
def test_each_layer_is_judged_by_what_it_does(judge, changes: tuple[str, ...], places: list[str]):
    result = judge(*changes)
    assert result.verdict == ("diverged" if places else "match")
    assert causes(result) == [("bump.width", place) for place in places]
    told = [float(cause.keras) for cause in result.causes]
    assert told == [float(change.partition("=")[2]) for change in changes]
