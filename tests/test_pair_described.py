"""What no formula and no setting explains: the ops and lines at which both sides part are told."""

from collections.abc import Callable

import pytest
from slow import sampled

from parity.pairs import file
from parity.pairs.compare import compared
from parity.results import CaseResult

TORCH = """
import torch
from torch import nn


class Curve(nn.Module):
    def forward(self, x):
        return torch.where(x > 0.5, x * torch.sigmoid(x), x.sin())


class Sums(nn.Module):
    def forward(self, x):
        return x.cumsum(1) * x


class Nothing(nn.Module):
    def __init__(self, factor=1.5):
        super().__init__()
        self.factor = factor

    def forward(self, x):
        return self.factor * x.sin()


class Model(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.fc, self.odd, self.out = nn.Linear(8, 8), globals()[kind](), nn.Linear(8, 4)

    def forward(self, x):
        return self.out(self.odd(self.fc(x)))
"""

KERAS = """
import keras
from keras import layers, ops


class Curve(layers.Layer):
    def call(self, x):
        return ops.where(x > 0.5, ops.log1p(ops.square(x)), ops.expm1(x))


class Sums(layers.Layer):
    def call(self, x):
        return ops.flip(ops.cumsum(ops.flip(x, 1), 1), 1) * x


class Nothing(layers.Layer):
    def call(self, x):
        return ops.zeros_like(x)


def model(kind):
    x = keras.Input((5, 8))
    y = globals()[kind](name="odd")(layers.Dense(8, name="fc")(x))
    return keras.Model(x, layers.Dense(4, name="out")(y))
"""

PAIR = """
[pair]
name = "odd"
torch = "odd_torch:Model"
keras = "odd_keras:model"
kwargs = {{ kind = "{kind}" }}

[inputs.x]
shape = [2, 5, 8]
"""

# By the kind of layer: what the evidence says.
ROWS = {
    "Curve": ("unknown", "odd_torch.py:8", "odd_keras.py:8"),
    "Sums": ("code.order", "torch `cumsum` at", "odd_torch.py:13", "odd_keras.py:13", "in another order"),
    "Nothing": ("unknown", "odd_torch.py:22", "odd_keras.py:18"),  # a factor of 0 is no evidence
}


@pytest.fixture(scope="module")
def judge(backends, tmp_path_factory) -> Callable[[str], CaseResult]:
    folder = tmp_path_factory.mktemp("odd")
    (folder / "odd_torch.py").write_text(TORCH)
    (folder / "odd_keras.py").write_text(KERAS)

    def judged(kind: str) -> CaseResult:
        written = folder / f"{kind}.toml"
        written.write_text(PAIR.format(kind=kind))
        return compared(file.load(written, []), backends, folder / kind, varied=False)

    return judged


@pytest.mark.parametrize("kind", sampled(ROWS, "Sums"))
def test_the_lines_of_both_sides_are_told(kind: str, judge: Callable[[str], CaseResult]):
    result = judge(kind)
    (cause,) = (cause for cause in result.causes if cause.where == "odd")
    id_, *told = ROWS[kind]
    assert (result.verdict, cause.id, cause.where) == ("diverged", id_, "odd")
    for words in told:
        assert words in cause.evidence, cause.evidence
