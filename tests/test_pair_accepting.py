"""Right ports that fail at first and match with exactly the lines that the report prints; no wrong one does."""

import itertools
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from judged import passes_strict

from parity.core.errors import UsageError
from parity.pairs import file
from parity.pairs.accept import accept
from parity.pairs.compare import compared
from parity.results import CaseResult

PAIRS = Path(__file__).parent / "pairs"
BATCHNORM = (PAIRS / "batchnorm.toml").read_text().replace("[inputs.x]", "keras_kwargs = { own = true }\n[inputs.x]")
LSTM = (PAIRS / "lstm_trained.toml").read_text()
TRANSPOSED = (
    (PAIRS / "convmap.toml").read_text().replace("[inputs.x]", "keras_kwargs = { transposed = true }\n[inputs.x]")
)
TORCH = """
import torch
from torch import nn


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x):
        return self.two(torch.tanh(self.one(x)))


build = Two


class Normed(Two):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(6)

    def forward(self, x):
        return self.two(torch.sin(self.norm(self.one(x))))


norm = Normed
"""
KERAS = """
import keras


class Scaled(keras.layers.Layer):
    def call(self, x):
        return x * 3 + 7


class Sine(keras.layers.Layer):
    # Between two layers, where torch has no module of it; squared in inference, if it is faulty.

    def __init__(self, faulty):
        super().__init__()
        self.faulty = faulty

    def call(self, x, training=False):
        return keras.ops.sin(x) if training or not self.faulty else keras.ops.square(keras.ops.sin(x))


def norm(faulty=False):
    norm = keras.layers.BatchNormalization(momentum=0.9, epsilon=1e-5)
    return keras.Sequential([keras.layers.Dense(6), norm, Sine(faulty), keras.layers.Dense(3)])


def build(scaled=False):
    layers = [keras.layers.Dense(6, activation="tanh"), keras.layers.Dense(3)]
    return keras.Sequential(layers + [Scaled()] * scaled)
"""
PAIR = (
    '[pair]\nname = "own"\ntorch = "own_torch:build"\nkeras = "own_keras:build"\n{more}\n[inputs.x]\nshape = [4, 6]\n'
)
UNKNOWN = '[[expect]]\ncause = "unknown"\nreason = "r"\n'


@pytest.fixture
def judge(backends, tmp_path) -> Callable[..., CaseResult]:
    """`judge(text, overrides)`: a pair of tests/pairs/ with this file, recorded and judged."""
    for module in PAIRS.glob("*.py"):
        shutil.copy(module, tmp_path)
    (tmp_path / "own_torch.py").write_text(TORCH)
    (tmp_path / "own_keras.py").write_text(KERAS)
    numbers = itertools.count()

    def judged(text: str, **arguments: object) -> CaseResult:
        path = tmp_path / "pair.toml"
        path.write_text(text)
        overrides = [f"pair.keras_kwargs.{name}={json.dumps(value)}" for name, value in arguments.items()]
        return compared(file.load(path, overrides), backends, tmp_path / f"run{next(numbers)}")

    return judged


def pasted(text: str, result: CaseResult) -> str:
    return "\n".join([text, *(one.toml for one in result.suggestions)])


@pytest.mark.parametrize("text", [BATCHNORM, LSTM, TRANSPOSED], ids=["batch norm", "lstm", "layout"])
def test_the_printed_lines_make_a_right_port_match(text, judge, tmp_path):
    first = judge(text)
    assert first.verdict == "diverged" and first.suggestions
    second = judge(pasted(text, first))
    assert second.verdict == "match" and passes_strict(second), second
    assert second.suggestions == []
    path = tmp_path / "accepted.toml"
    path.write_text(text)
    assert accept(path, first.suggestions) and not accept(path, first.suggestions)
    assert file.load(path).case.model == file.load(tmp_path / "pair.toml").case.model


@pytest.mark.parametrize(
    ("text", "fault", "cause"),
    [
        (BATCHNORM, {"epsilon": 1e-3}, "batch_norm.epsilon"),
        (LSTM, {"gates": "hard_sigmoid"}, "lstm.recurrent_activation"),
    ],
    ids=["batch norm", "lstm"],
)
def test_no_other_fault_passes_with_them(text, fault, cause, judge):
    result = judge(pasted(text, judge(text)), **fault)
    assert result.verdict == "diverged"
    assert cause in [each["id"] for each in result.causes]


def test_a_fault_in_inference_alone_does_not_follow_from_the_statistics_of_a_batch_norm(judge):
    text = PAIR.format(more="").replace(":build", ":norm") + "[train]\nsteps = 2\n"
    lines = pasted(text, judge(text))
    assert judge(lines).verdict == "match"
    assert judge(lines, faulty=True).verdict == "diverged"


def test_an_unknown_difference_is_accepted_by_no_cause_and_by_no_small_size(judge):
    more = "keras_kwargs = { scaled = true }"
    with pytest.raises(UsageError, match="accepts any difference"):
        judge(PAIR.format(more=more) + UNKNOWN)
    places = ("(model)", "loss", "one.*", "two.*")
    sizes = [f'{UNKNOWN}where = "{where}"\nlargest_difference = SIZE\n' for where in (*places, "(input).x")]
    text = PAIR.format(more=more) + "".join(sizes)
    assert judge(text.replace("SIZE", "1e-3")).verdict == "diverged"
    assert judge(text.replace("SIZE", "100.0")).verdict == "match"
    missing_loss = PAIR.format(more=more) + "".join(size for size in sizes if '"loss"' not in size)
    result = judge(missing_loss.replace("SIZE", "100.0"))
    assert result.verdict == "diverged" and "loss loss does not follow" in result.reason


def test_what_was_not_looked_at_is_said(judge):
    (said,) = judge(PAIR.format(more="")).not_compared
    assert said == "no training step was run, as the file has no [train]: neither loss nor optimizer"
    (norm,) = judge((PAIRS / "convmap.toml").read_text()).not_compared
    assert norm.endswith("nor batch norm's statistics (1 module)")
    assert judge(PAIR.format(more="") + "[train]\nsteps = 1\n").not_compared == []


def test_an_output_s_axes_are_known_from_its_layers_and_a_fault_is_placed(judge):
    text = (PAIRS / "convmap.toml").read_text()
    right = judge(text)
    assert right.verdict == "match" and right.matched.layouts == {"(model)": "n c axis0 axis1 -> n axis0 axis1 c"}
    wrong = judge(text, epsilon=1e-3)
    assert (wrong.verdict, wrong.first_divergence.name) == ("diverged", "norm")
    trained = judge(text + '\n[train]\nloss = "mse"\nsteps = 1\n')
    assert [each["id"] for each in trained.causes] == ["batch_norm.running_variance"]
