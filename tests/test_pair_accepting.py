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
from parity.pairs.accepting.suggest import accept
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


class Rounded(Normed):
    # GELU's constant is float32 in TensorFlow: it differs before the norm, where float32 sees nothing of it.

    def forward(self, x):
        return self.two(self.norm(nn.functional.gelu(self.one(x))))


class Twice(Normed):
    def __init__(self):
        super().__init__()
        self.before = nn.BatchNorm1d(6)

    def forward(self, x):
        return self.two(self.norm(self.before(self.one(x)).cumsum(1)))  # which the catalogue has no formula for


rounded, twice = Rounded, Twice


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.word, self.mark = nn.Embedding(9, 4, padding_idx=0), nn.Embedding(7, 3, padding_idx=0)
        self.conv = nn.Conv1d(3, 5, 3, padding=1)
        self.lstm = nn.LSTM(9, 3, num_layers=2, bidirectional=True, batch_first=True)
        self.out = nn.Linear(6, 4)

    def forward(self, words, marks):
        marked = self.conv(self.mark(marks).transpose(1, 2)).relu().transpose(1, 2)
        return self.out(self.lstm(torch.cat([self.word(words), marked], -1))[0].mean(1))


tagger = Tagger
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


def batch_norm(epsilon=1e-5):
    return keras.layers.BatchNormalization(momentum=0.9, epsilon=epsilon)


class Drifting(keras.layers.BatchNormalization):
    def build(self, shape):
        super().build(shape)
        self.begun = self.add_weight(shape=(), initializer="zeros", trainable=False)

    def call(self, x, training=False):
        outputs = super().call(x, training=training)
        if training:
            self.moving_mean.assign_add(0.1 * self.begun * keras.ops.ones_like(self.moving_mean))
            self.begun.assign(1.0)
        return outputs


def norm(faulty=False, drifts=False):
    norm = Drifting(momentum=0.9, epsilon=1e-5) if drifts else batch_norm()
    return keras.Sequential([keras.layers.Dense(6), norm, Sine(faulty), keras.layers.Dense(3)])


class Gelu(keras.layers.Layer):
    def __init__(self, approximate):
        super().__init__()
        self.approximate = approximate

    def call(self, x):
        return keras.ops.gelu(x, approximate=self.approximate)


class Summed(keras.layers.Layer):
    def __init__(self, faulty):
        super().__init__()
        self.faulty = faulty

    def call(self, x):
        summed = keras.ops.cumsum(x, 1)
        return summed - 0.1 * x * keras.ops.roll(x, 1, 1) if self.faulty else summed


def rounded(approximate=False):
    return keras.Sequential([keras.layers.Dense(6), Gelu(approximate), batch_norm(), keras.layers.Dense(3)])


def twice(epsilon=1e-5, faulty=False):
    norms = batch_norm(), batch_norm(epsilon)
    return keras.Sequential([keras.layers.Dense(6), norms[0], Summed(faulty), norms[1], keras.layers.Dense(3)])


class Tagger(keras.Model):
    def __init__(self, faulty):
        super().__init__()
        self.faulty = faulty
        self.word, self.mark = keras.layers.Embedding(9, 4), keras.layers.Embedding(7, 3)
        self.conv = keras.layers.Conv1D(5, 3, padding="same", activation="relu")
        layers = [keras.layers.LSTM(3, return_sequences=True) for _ in range(2)]
        self.first, self.second = map(keras.layers.Bidirectional, layers)
        self.out = keras.layers.Dense(4)

    def call(self, inputs, training=False):
        marks = self.mark(inputs["marks"])
        marks = marks if training or not self.faulty else marks * 0.9
        both = keras.ops.concatenate([self.word(inputs["words"]), self.conv(marks)], -1)
        return self.out(keras.ops.mean(self.second(self.first(both)), 1))


def tagger(faulty=False):
    return Tagger(faulty)


def build(scaled=False):
    layers = [keras.layers.Dense(6, activation="tanh"), keras.layers.Dense(3)]
    return keras.Sequential(layers + [Scaled()] * scaled)
"""
PAIR = (
    '[pair]\nname = "own"\ntorch = "own_torch:build"\nkeras = "own_keras:build"\n{more}\n[inputs.x]\nshape = [4, 6]\n'
)
IDS = '[inputs.{}]\nshape = [3, 5]\ndtype = "int64"\nrange = [0, {}]\n'
TAGGER = (
    '[pair]\nname = "tagger"\ntorch = "own_torch:tagger"\nkeras = "own_keras:tagger"\n'
    f'{IDS.format("words", 9)}{IDS.format("marks", 7)}[train]\noptimizer = "sgd"\nsteps = 2\n'
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


def normed(name: str) -> str:
    """The file of a pair that both sides build by a function of this name and train."""
    return PAIR.format(more="").replace(":build", f":{name}") + "[train]\nsteps = 2\n"


def pasted(text: str, result: CaseResult) -> str:
    return "\n".join([text, *(one.toml for one in result.suggestions)])


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(BATCHNORM, id="batch norm", marks=pytest.mark.slow),
        pytest.param(LSTM, id="lstm", marks=pytest.mark.slow),
        pytest.param(TRANSPOSED, id="layout"),
        pytest.param(TAGGER, id="several of a kind", marks=pytest.mark.slow),
    ],
)
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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "fault", "cause"),
    [
        (BATCHNORM, {"epsilon": 1e-3}, "batch_norm.epsilon"),
        (LSTM, {"gates": "hard_sigmoid"}, "lstm.recurrent_activation"),
        (LSTM, {"stateful": True}, "state.carried"),  # from the second step on
    ],
    ids=["batch norm", "lstm", "later"],
)
def test_no_other_fault_passes_with_them(text, fault, cause, judge):
    result = judge(pasted(text, judge(text)), **fault)
    assert result.verdict == "diverged"
    assert cause in [each.id for each in result.causes]


@pytest.mark.slow
def test_what_float32_cannot_see_is_named_where_all_that_it_sees_is_accepted(judge):
    text = normed("rounded")
    first = judge(text)
    assert [each.id for each in first.causes] == ["batch_norm.running_variance"]
    lines = pasted(text, first)
    beneath = judge(lines)
    assert beneath.verdict == "subprecision" and len(beneath.expected) == 1
    assert beneath.causes[-1].id == "constant.precision" and beneath.first_divergence.name == "(model)"
    assert judge(pasted(lines, beneath)).verdict == "match"
    assert judge(lines, approximate=True).verdict == "diverged"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "cause", "place"),
    [({"epsilon": 1e-3}, "batch_norm.epsilon", "norm"), ({"faulty": True}, "summed.faulty", "(model)")],
)
def test_a_fault_between_accepted_causes_is_named_and_placed(fault, cause, place, judge):
    """What goes into a module of which a cause is accepted is no part of that cause."""
    text = normed("twice")
    lines = pasted(text, judge(text))
    assert judge(lines).verdict == "match"
    wrong = judge(lines, **fault)
    assert wrong.verdict == "diverged" and cause in [each.id for each in wrong.causes]
    assert wrong.first_divergence.name == place


@pytest.mark.slow
def test_a_fault_between_modules_in_inference_alone_does_not_follow_from_accepted_causes(judge):
    lines = pasted(TAGGER, judge(TAGGER))
    assert judge(lines, faulty=True).verdict == "diverged"


@pytest.mark.slow
def test_a_fault_in_inference_alone_does_not_follow_from_the_statistics_of_a_batch_norm(judge):
    text = normed("norm")
    lines = pasted(text, judge(text))
    assert judge(lines).verdict == "match"
    assert judge(lines, faulty=True).verdict == "diverged"


@pytest.mark.parametrize("accepts", [pytest.param(False, marks=pytest.mark.slow), True])
def test_an_inherent_running_variance_hides_no_later_difference_of_the_mean(accepts, judge):
    line = '[[expect]]\ncause = "batch_norm.running_variance"\nwhere = "norm"\nreason = "r"\n'
    result = judge(normed("norm") + line * accepts, drifts=True)
    assert result.verdict == "diverged" and result.first_divergence.name == "norm.running_mean"
    assert [cause.id == "batch_norm.running_variance" for cause in result.causes] == [False, True][: 2 - accepts]


@pytest.mark.slow
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
    assert result.verdict == "diverged" and "follows from nothing accepted" in result.reason
    assert (result.first_divergence.kind, result.first_divergence.name) == ("loss", "loss")


@pytest.mark.slow
@pytest.mark.usefixtures("verdicts_only")
def test_what_was_not_looked_at_is_said(judge):
    (said,) = judge(PAIR.format(more="")).not_compared
    assert said == "no training step was run, as the file has no [train]: neither loss nor optimizer"
    (norm,) = judge((PAIRS / "convmap.toml").read_text()).not_compared
    assert norm.endswith("nor batch norm's statistics (1 module)")
    assert judge(PAIR.format(more="") + "[train]\nsteps = 1\n").not_compared == []


@pytest.mark.slow
def test_an_output_s_axes_are_known_from_its_layers_and_a_fault_is_placed(judge):
    text = (PAIRS / "convmap.toml").read_text()
    right = judge(text)
    assert right.verdict == "match" and right.matched.layouts == {"(model)": "n c axis0 axis1 -> n axis0 axis1 c"}
    wrong = judge(text, epsilon=1e-3)
    assert (wrong.verdict, wrong.first_divergence.name) == ("diverged", "norm")
    trained = judge(text + '\n[train]\nloss = "mse"\nsteps = 1\n')
    assert [each.id for each in trained.causes] == ["batch_norm.running_variance"]
