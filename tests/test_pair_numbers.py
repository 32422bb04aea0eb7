"""Single numbers in which two models part: a loss of the user's own, and what a module returns beside its output."""

import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest

from parity.pairs import file
from parity.pairs.compare import compared
from parity.results import CaseResult

TORCH = """
import torch
from torch import nn


class Chosen(nn.Module):
    def __init__(self, k=2):
        super().__init__()
        self.k, self.factor, self.route = k, 0.25, nn.Linear(6, 4)

    def forward(self, x):
        chances = self.route(x).softmax(-1)
        most = chances.topk(self.k, -1).values
        return x * most.sum(-1, keepdim=True), self.factor * most.mean(0).square().sum()


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.chosen, self.out = Chosen(), nn.Linear(6, 3)

    def forward(self, x):
        features, penalty = self.chosen(x)
        return self.out(features), penalty


build = Model


def loss(outputs, target):
    apart, penalty = (outputs[0] - target) / target.std(), outputs[1]
    return torch.minimum(apart.square(), apart.abs()).mean() + penalty
"""
KERAS = """
import keras
from keras import ops


class Chosen(keras.layers.Layer):
    def __init__(self, k=2, factor=0.25, few=False):
        super().__init__()
        self.k, self.factor, self.few, self.route = k, factor, few, keras.layers.Dense(4)

    def call(self, x):
        most = ops.top_k(ops.softmax(self.route(x)), self.k)[0]
        counted = ops.amax(most, -1, keepdims=True) if self.few else most
        return x * ops.sum(most, -1, keepdims=True), self.factor * ops.sum(ops.square(ops.mean(counted, 0)))


class Model(keras.Model):
    def __init__(self, **given):
        super().__init__()
        self.chosen, self.out = Chosen(**given), keras.layers.Dense(3)

    def call(self, x):
        features, penalty = self.chosen(x)
        return self.out(features), penalty


build = Model


def spread(x):
    return ops.sqrt(ops.sum(ops.square(x - ops.mean(x))) / (x.shape[0] * x.shape[1] - 1))


def loss(outputs, target):
    apart = (outputs[0] - target) / spread(target)
    return ops.mean(ops.minimum(ops.square(apart), ops.abs(apart))) + outputs[1]


def farthest(outputs, target):
    apart = (outputs[0] - target) / spread(target)
    return ops.mean(ops.maximum(ops.square(apart), ops.abs(apart))) + outputs[1]


def ranged(outputs, target):
    apart = (outputs[0] - target) / (ops.max(target) - ops.min(target))
    return ops.mean(ops.minimum(ops.square(apart), ops.abs(apart))) + outputs[1]
"""
FILE = """
[pair]
name = "numbers"
torch = "numbers_torch:build"
keras = "numbers_keras:build"
[inputs.x]
shape = [5, 6]
[inputs.target]
shape = [5, 3]
[train]
torch_loss = "numbers_torch:loss"
keras_loss = "numbers_keras:loss"
steps = 1
"""
Judge = Callable[..., CaseResult]


@pytest.fixture
def judge(backends, tmp_path) -> Judge:
    for name, text in (("numbers_torch.py", TORCH), ("numbers_keras.py", KERAS), ("numbers.toml", FILE)):
        (tmp_path / name).write_text(text)
    numbers = itertools.count()

    def judged(**changes: Any) -> CaseResult:
        overrides = [f"{key.replace('__', '.')}={json.dumps(value)}" for key, value in changes.items()]
        pair = file.load(tmp_path / "numbers.toml", overrides)
        return compared(pair, backends, tmp_path / f"run{next(numbers)}", varied=False)

    return judged


@pytest.mark.slow
def test_the_port_matches_and_a_loss_over_float_inputs_is_explained(judge: Judge):
    assert judge().verdict == "match", judge()
    (cause,) = judge(train__keras_loss="numbers_keras:farthest").causes
    assert (cause.id, cause.where, cause.torch) == ("code.function", "loss", "minimum")


@pytest.mark.slow  # of a layer, test_pair_causes has lines that are told
def test_the_lines_are_told_of_a_loss_that_nothing_explains(judge: Judge):
    (cause,) = judge(train__keras_loss="numbers_keras:ranged").causes
    assert (cause.id, cause.where) == ("unknown", "loss")
    std = TORCH.splitlines().index("    apart, penalty = (outputs[0] - target) / target.std(), outputs[1]") + 1
    assert f"numbers_torch.py:{std}, keras `Max` at " in cause.evidence, cause.evidence


def test_a_number_that_a_module_returns_beside_its_output_is_explained(judge: Judge):
    result = judge(pair__keras_kwargs__factor=0.2)
    assert result.first_divergence and result.first_divergence.name == "chosen#1"
    (cause,) = result.causes
    assert (cause.id, cause.torch, cause.keras) == ("chosen.factor", 0.25, 0.2)


@pytest.mark.slow
def test_what_would_change_the_output_explains_no_number_beside_it(judge: Judge):
    """With k = 1 torch would return Keras's number, and another output than Keras's."""
    (cause,) = judge(pair__keras_kwargs__few=True).causes
    assert cause.id != "chosen.k" and "few" in cause.id, cause
