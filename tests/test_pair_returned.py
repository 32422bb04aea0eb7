"""Outputs of both models belong together by their keys, where both have keys; what is left out of them is told."""

from collections.abc import Callable
from pathlib import Path

import pytest

from parity.core.errors import UsageError
from parity.pairs import file
from parity.pairs.compare import compared
from parity.results import CaseResult

TORCH = """
import collections
import dataclasses

import numpy as np
import torch
from torch import nn


@dataclasses.dataclass
class Fields:
    mean: torch.Tensor
    logvar: torch.Tensor


Tuple = collections.namedtuple("Tuple", ["mean", "logvar"])


class Returns(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.fc, self.function = nn.Linear(6, 6), function

    def forward(self, x):
        return self.function(self.fc(x), self.training)


def build(code):
    return Returns(eval(f"lambda h, training: {code}"))
"""
KERAS = """
import keras
import numpy as np
import tensorflow as tf
from keras import ops


class Returns(keras.Model):
    def __init__(self, function):
        super().__init__()
        self.fc, self.function = keras.layers.Dense(6), function

    def call(self, x, training=False):
        return self.function(self.fc(x), training)


def build(code):
    return Returns(eval(f"lambda h, training: {code}"))
"""
PAIR = """
[pair]
name = "returned"
torch = "returned_torch:build"
keras = "returned_keras:build"
torch_kwargs = {{ code = '{torch}' }}
keras_kwargs = {{ code = '{keras}' }}

[inputs.x]
shape = [4, 6]
"""
TRAIN = "[train]\nsteps = 1\n"


@pytest.fixture
def judge(backends, tmp_path) -> Callable[..., CaseResult]:
    """`judge(torch, keras, more)`: a pair of models that return this of h, their layer's output."""
    (tmp_path / "returned_torch.py").write_text(TORCH)
    (tmp_path / "returned_keras.py").write_text(KERAS)

    def judged(torch: str, keras: str, more: str = "") -> CaseResult:
        path: Path = tmp_path / "pair.toml"
        path.write_text(PAIR.format(torch=torch, keras=keras) + more)
        return compared(file.load(path), backends, tmp_path / "run", varied=False)

    return judged


RIGHT = '{"logvar": (-ops.abs(h),), "mean": {"y": h * h, "x": h}}'
INNER_WRONG, OUTER_WRONG = (
    RIGHT.replace('"y": h * h, "x": h', '"y": h, "x": h * h'),
    '{"logvar": h, "mean": -ops.abs(h)}',
)


@pytest.mark.usefixtures("verdicts_only")
@pytest.mark.parametrize(
    ("torch", "keras", "verdict"),
    [
        pytest.param('Fields({"x": h, "y": h * h}, [-h.abs()])', RIGHT, "match", marks=pytest.mark.slow),
        pytest.param('Tuple({"x": h, "y": h * h}, [-h.abs()])', RIGHT, "match", marks=pytest.mark.slow),
        ('Tuple({"x": h, "y": h * h}, [-h.abs()])', INNER_WRONG, "diverged"),
        pytest.param("Tuple(h, -h.abs())", OUTER_WRONG, "diverged", marks=pytest.mark.slow),
    ],
)
def test_outputs_belong_together_by_their_keys(torch, keras, verdict, judge):
    """By those of fields, and by those within them."""
    assert judge(torch, keras, TRAIN).verdict == verdict


@pytest.mark.usefixtures("verdicts_only")
def test_keys_that_only_training_returns_count(judge):
    torch = '{"out": h, "a": h * h, "b": -h} if training else {"out": h}'
    assert judge(torch, '{"b": -h, "a": h * h, "out": h} if training else {"out": h}', TRAIN).verdict == "match"
    result = judge(torch, '{"b": h * h, "a": -h, "out": h} if training else {"out": h}', TRAIN)
    assert result.verdict == "diverged"


@pytest.mark.usefixtures("verdicts_only")
def test_keys_of_one_side_alone_say_nothing(judge):
    assert judge("(h, h * h)", '{"z": h, "a": h * h}').verdict == "match"
    assert judge('{"z": h, "a": h * h}', "(h * h, h)").verdict == "diverged"


def test_other_keys_are_told_in_one_line(judge):
    with pytest.raises(UsageError) as error:
        judge('{"mean": h, "scale": h * h}', '{"mean": h, "variance": h * h}')
    message = str(error.value)
    assert "only torch's has 'scale'; only Keras's has 'variance'" in message and "\n" not in message
    assert '[outputs.NAME] with torch = "scale" and keras = "variance"' in message


def test_the_lines_that_it_names_mend_it(judge):
    chosen = '[outputs.scale]\ntorch = "scale"\nkeras = "variance"\n'
    result = judge('{"mean": h, "scale": h * h}', '{"mean": h, "variance": h * h}', chosen)
    assert result.verdict == "match"


TARGET = "[inputs.target]\nshape = [4]\n"


@pytest.mark.usefixtures("verdicts_only")
@pytest.mark.parametrize(
    ("torch", "keras", "more", "failing"),
    [
        pytest.param("h[:, 0]", "h[:, :1]", TARGET, "keras", id="shape"),
        pytest.param("h.argmax(-1)", "ops.max(h, -1)", "", "torch", id="integers", marks=pytest.mark.slow),
    ],
)
def test_an_output_on_which_only_one_side_can_be_trained_is_a_difference(torch, keras, more, failing, judge):
    result = judge(torch, keras, more + TRAIN)
    assert (result.verdict, result.first_divergence.name) == ("diverged", "(model)"), result
    assert (
        result.not_compared[0].startswith("only ")
        and f" compared: {failing} fails after it: " in result.not_compared[0]
    )
    assert not any("as the file has" in told for told in result.not_compared)


@pytest.mark.slow
def test_a_port_through_which_no_gradient_passes_is_compared_without_training(judge):
    """Keras's optimizer refuses to update nothing."""
    result = judge("h", "ops.stop_gradient(h)", TRAIN)
    assert (result.verdict, result.causes[0].id) == ("diverged", "gradient.missing"), result
    assert "No gradients provided" in result.not_compared[0]


def test_a_target_that_fits_neither_side_is_an_error(judge):
    result = judge("h", "-h", TARGET + TRAIN)
    assert (result.verdict, result.causes) == ("error", [])
    assert "inputs.target: shape [4], expected [4, 6]" in result.reason


def test_a_side_that_fails_after_an_equal_forward_pass_is_an_error(judge, tmp_path):
    failing = 'torch_loss = "torch.nn.functional:mse_loss"\nkeras_loss = "math:hypot"\n'
    result = judge("h", "h", TRAIN + failing)
    assert result.verdict == "error" and "train.keras_loss=math:hypot fails" in result.reason
    assert not any((tmp_path / "run" / side).exists() for side in ("torch", "keras"))


NUMBERS = '{"n": 0.1 + 0.2, "count": 7, "array": np.arange(3.0) / 7, "h": h}'


@pytest.mark.usefixtures("verdicts_only")
@pytest.mark.parametrize(
    ("keras", "verdict"),
    [
        pytest.param(NUMBERS, "match", marks=pytest.mark.slow),
        pytest.param(NUMBERS.replace("0.1 + 0.2", "0.6"), "diverged", marks=pytest.mark.slow),
        pytest.param(NUMBERS.replace("7,", "14,"), "diverged", marks=pytest.mark.slow),
        (NUMBERS.replace("/ 7", "/ 3.5"), "diverged"),
    ],
)
def test_numbers_are_compared(keras, verdict, judge):
    assert judge(NUMBERS, keras, TRAIN).verdict == verdict


def test_what_is_left_out_is_told(judge):
    result = judge('{"h": h, "more": ["a", None, slice(3)]}', '{"h": h, "names": "b"}', TRAIN)
    assert result.verdict == "match"
    assert result.not_compared == [
        "torch's output 'more.0' of type str was not compared",
        "torch's output 'more.2' of type slice was not compared",
        "Keras's output 'names' of type str was not compared",
    ]


COMPLEX = "tf.complex(h, 2 * h)"


@pytest.mark.usefixtures("verdicts_only")
@pytest.mark.parametrize(
    ("keras", "verdict"),
    [(COMPLEX, "match"), (f"tf.stop_gradient({COMPLEX})", "diverged"), ("tf.complex(h, -2 * h)", "diverged")],
)
def test_gradients_of_complex_outputs_are_compared(keras, verdict, judge):
    result = judge("torch.complex(h, 2 * h)", keras)
    assert result.verdict == verdict
    assert result.checks["gradient"].verdict == verdict


def test_gradients_that_are_zero_everywhere_are_no_evidence(judge):
    result = judge("h.detach()", "ops.stop_gradient(h)")
    assert (result.verdict, "gradients of all parameters are zero" in result.reason) == ("inconclusive", True)


def test_whole_numbers_have_no_gradients_and_this_is_told(judge):
    result = judge("(h > 0, h.argmax(-1))", "(h > 0, ops.argmax(h, -1))")
    assert result.verdict == "match"
    assert any(line.startswith("gradients were not compared") for line in result.not_compared)
