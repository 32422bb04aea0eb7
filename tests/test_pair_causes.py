"""What is told of two models that part where no formula is known: each row is a small pair, written out in full."""

from pathlib import Path
from typing import Any, NamedTuple

import pytest
from slow import sampled

from parity.pairs import file
from parity.pairs.causes import experiment
from parity.pairs.compare import compared
from parity.results import CaseResult
from parity.runtime.backend import Backend

TORCH = """
import math
import os

import torch
from torch import nn
"""
KERAS = """
import keras
from keras import layers, ops
"""
PAIR = '[pair]\nname = "told"\ntorch = "of_torch:build"\nkeras = "of_keras:build"\n[inputs.x]\nshape = {}\n'
WORDS = '[3, 5]\ndtype = "int64"\nrange = [0, 20]'

MASKING = """
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
NOT_MASKING = """
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
        return ops.sum(ops.softmax(score, axis=1) * x, axis=1)

class build(keras.Model):
    def __init__(self):
        super().__init__()
        self.encoder, self.pool, self.head = Encoder(), Pool(), layers.Dense(3)
    def call(self, x):
        given = x[..., 0] > -0.5
        return self.head(self.pool(self.encoder(x, given), given))
"""
ITS_POOL_MASKS = NOT_MASKING.replace(
    "score = self.score(x)", 'score = ops.where(given[..., None], self.score(x), -float("inf"))'
)
SCALED = """
class build(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.out = nn.Embedding(20, 8), nn.Linear(8, 3)
        self.width, self.shift = 8, nn.Parameter(torch.rand(8))
    def forward(self, x):
        return self.out(self.table(x) * math.sqrt(self.width) + self.shift)
"""
UNSCALED = """
class build(keras.Model):
    def __init__(self):
        super().__init__()
        self.table, self.out = layers.Embedding(20, 8), layers.Dense(3)
        self.shift = self.add_weight(shape=(8,), name="shift")
    def call(self, x):
        return self.out(self.table(x) + self.shift)
"""
ODD = """
class Odd(nn.Module):
    def __init__(self, factor=1.5):
        super().__init__()
        self.factor = factor
    def forward(self, x):
        return {}

class build(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.odd, self.out = nn.Linear(8, 8), Odd(), nn.Linear(8, 4)
    def forward(self, x):
        return self.out(self.odd(self.fc(x)))
"""
OTHER_ODD = """
class Odd(layers.Layer):
    def call(self, x):
        return {}

def build():
    x = keras.Input((5, 8))
    y = Odd(name="odd")(layers.Dense(8, name="fc")(x))
    return keras.Model(x, layers.Dense(4, name="out")(y))
"""
BUMPS = """
class Bump(nn.Module):
    def __init__(self, groups=2, width=1.5):
        super().__init__()
        self.groups, self.width = groups, width
    def forward(self, x):
        return x * torch.exp(-torch.square(x) / self.width)

class build(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 3)
        self.first, self.second = Bump(), Bump()
    def forward(self, x):
        x = self.first(self.a(x))
        y = self.second(self.b(x))
        return self.c(torch.tanh(x) * torch.sigmoid(y * y))
"""
# As C++ ends where it divides by what is 0.
DEADLY = BUMPS.replace(
    "        return x *", "        if self.groups not in (1, 2):\n            os.abort()\n        return x *"
)
OTHER_BUMPS = """
class Bump(layers.Layer):
    def __init__(self, width):
        super().__init__()
        self.width = width
    def call(self, x):
        return x * ops.exp(-ops.square(x) / self.width)

class build(keras.Model):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = layers.Dense(8), layers.Dense(8), layers.Dense(3)
        self.first, self.second = Bump({}), Bump({})
    def call(self, x):
        x = self.first(self.a(x))
        y = self.second(self.b(x))
        return self.c(ops.tanh(x) * ops.sigmoid(y * y))
"""


class Row(NamedTuple):
    """Two models, the shape of their input, the causes (id, place, torch's and Keras's value), and what else is told.

    A value of None is any. `evidence` is of the first cause; "torch: x", "keras: x" in it is the line of this code.
    `place`: where causes are looked at, "" for all.
    """

    torch: str
    keras: str
    shape: str
    causes: tuple[tuple[str, str, Any, Any], ...] = ()
    evidence: tuple[str, ...] = ()
    assumed: str = ""
    place: str = ""


def odd(torch: str, keras: str, id_: str, *evidence: str) -> Row:
    lines = (f"torch: return {torch}", f"keras: return {keras}", *evidence)
    return Row(ODD.format(torch), OTHER_ODD.format(keras), "[2, 5, 8]", ((id_, "odd", None, None),), lines, place="odd")


def bumps(first: float, second: float, torch: str = BUMPS) -> Row:
    wrong = {place: width for place, width in (("first", first), ("second", second)) if width != 1.5}
    causes = tuple(("bump.width", place, 1.5, width) for place, width in wrong.items())
    return Row(torch, OTHER_BUMPS.format(first, second), "[5, 6]", causes)


ROWS = {
    # What two ports do otherwise at padding is no fault, unless the one that takes it does not mask it.
    "masked": Row(MASKING, ITS_POOL_MASKS, "[4, 7, 5]"),
    "not masked": Row(MASKING, NOT_MASKING, "[4, 7, 5]",
        (("mask.missing", "pool", ">", "left out"),),
        assumed="encoder, pool.score of torch: "),
    # The size of a weight, which both sides share, is no cause where a term that is computed of it is left out.
    "a factor by a size": Row(SCALED, UNSCALED, WORDS, (("module.wiring", None, "*", "the first alone"),),
        ("torch: return self.out(self.table(x) *",)),
    # What no formula and no setting explains: the ops and lines at which both sides part are told.
    "another curve": odd("torch.where(x > 0.5, x * torch.sigmoid(x), x.sin())",
        "ops.where(x > 0.5, ops.log1p(ops.square(x)), ops.expm1(x))", "unknown"),
    "sums from behind": odd("x.cumsum(1) * x", "ops.flip(ops.cumsum(ops.flip(x, 1), 1), 1) * x", "code.order",
        "torch `cumsum` at", "in another order"),
    "nothing": odd("self.factor * x.sin()", "ops.zeros_like(x)", "unknown"),  # a factor of 0 is no evidence
    # A layer behind a difference is asked with what the other side's was given.
    "right layers": bumps(1.5, 1.5),
    "one layer": bumps(2.5, 1.5),
    "the same twice": bumps(2.5, 2.5),
    "two layers": bumps(2.5, 0.5),
    # A value by which the process ends is passed over in the search: another process goes on.
    "a deadly value": bumps(2.5, 1.5, DEADLY),
}  # fmt: skip
SAMPLE = ("masked", "not masked", "sums from behind", "a deadly value")


def result_of(row: Row, backends: list[Backend], folder: Path) -> CaseResult:
    (folder / "of_torch.py").write_text(TORCH + row.torch)
    (folder / "of_keras.py").write_text(KERAS + row.keras)
    (folder / "pair.toml").write_text(PAIR.format(row.shape))
    return compared(file.load(folder / "pair.toml"), backends, folder / "traces", varied=False)


def said(row: Row, words: str) -> str:
    """Return what the evidence is to hold: the words, or the line of a side's code."""
    side, _, code = words.partition(": ")
    if side not in ("torch", "keras"):
        return words
    lines = f"{TORCH}{row.torch}" if side == "torch" else f"{KERAS}{row.keras}"
    (number,) = [number for number, line in enumerate(lines.splitlines(), 1) if line.strip().startswith(code)]
    return f"of_{side}.py:{number}"


@pytest.mark.parametrize("row", sampled([pytest.param(row, id=name) for name, row in ROWS.items()], *SAMPLE))
def test_what_is_told_of_two_models(row: Row, backends: list[Backend], tmp_path: Path) -> None:
    result = result_of(row, backends, tmp_path)
    assert result.verdict == ("diverged" if row.causes else "match"), result
    causes = [cause for cause in result.causes if row.place in ("", cause.where)]
    for cause, expected in zip(causes, row.causes, strict=True):
        told = zip(expected, (cause.id, cause.where, cause.torch, cause.keras), strict=True)
        assert all(wanted is None or type(wanted)(got) == wanted for wanted, got in told), causes
    assert all(said(row, words) in causes[0].evidence for words in row.evidence), causes
    assert not row.assumed or any(each.startswith(row.assumed) for each in result.assumptions)


@pytest.mark.slow
def test_where_no_further_process_may_end_it_is_told(
    backends: list[Backend], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(experiment, "MOST_ENDS", 0)
    result = result_of(ROWS["a deadly value"], backends, tmp_path)
    assert [(cause.id, cause.where) for cause in result.causes] == [("unknown", "first")]
    assert any("could not be called again: torch: the process ended" in text for text in result.not_compared)
