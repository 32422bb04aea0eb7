"""Behind an accepted difference: faults of the backward pass and of the optimizer are not accepted with it."""

import json
from collections.abc import Callable

import pytest

from parity.pairs import file
from parity.pairs.compare import compared
from parity.results import CaseResult

TORCH = """
import torch
from torch import nn


class Normed(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.n, self.b = nn.Linear(6, 16), nn.LayerNorm(16), nn.Linear(16, 16)
        self.act, self.c = nn.Tanh(), nn.Linear(16, 4)

    def forward(self, x):
        h = self.n(self.a(x))
        return self.c(h + self.act(self.b(h)))


class Unused(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.u = nn.Linear(6, 4), nn.Linear(6, 4)

    def forward(self, x):
        return self.a(x)


class Statistics(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.n, self.c = nn.Linear(6, 16), nn.BatchNorm1d(16), nn.Linear(16, 4)

    def forward(self, x):
        return self.c(torch.tanh(self.n(self.a(x))))


class Resized(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.n, self.c = nn.Linear(6, 16), nn.BatchNorm1d(16), nn.Linear(64, 4)
        self.up = nn.Upsample(scale_factor=2, mode="bilinear")

    def forward(self, x):
        return self.c(self.up(self.n(self.a(x)).view(-1, 1, 4, 4)).flatten(1))


class Damped(torch.optim.Optimizer):
    # In no catalogue.

    def __init__(self, parameters):
        super().__init__(parameters, {})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.sub_(0.01 * p.grad / (1 + p.grad.abs()) + 0.001 * p)


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.01)
"""
KERAS = """
import keras
from keras import layers, ops


class Normed(keras.Model):
    def __init__(self, epsilon=1e-3, fault=""):
        super().__init__()
        self.a, self.n, self.b = layers.Dense(16), layers.LayerNormalization(epsilon=epsilon), layers.Dense(16)
        self.act, self.c, self.fault = layers.Activation("tanh"), layers.Dense(4), fault

    def call(self, x):
        h = self.n(self.a(x))
        t = self.act(self.b(ops.stop_gradient(h) if self.fault == "stopped" else h))
        if self.fault == "scaled":
            t = 1.5 * t + ops.stop_gradient(-0.5 * t)
        return self.c(h + t)


class Unused(keras.Model):
    def __init__(self):
        super().__init__()
        self.a, self.u = layers.Dense(4), layers.Dense(4)

    def call(self, x):
        return self.a(x) + 0.0 * self.u(x)


class Statistics(keras.Model):
    def __init__(self, fault=""):
        super().__init__()
        self.a, self.c, self.fault = layers.Dense(16), layers.Dense(4), fault
        self.n = layers.BatchNormalization(momentum=0.9, epsilon=1e-5)

    def call(self, x, training=False):
        h = ops.tanh(self.n(self.a(x), training=training))
        return self.c(h if training or not self.fault else ops.relu(h))


class Resized(keras.Model):
    def __init__(self):
        super().__init__()
        self.a, self.c = layers.Dense(16), layers.Dense(4)
        self.n = layers.BatchNormalization(momentum=0.9, epsilon=1e-5)
        self.up = layers.UpSampling2D(2, interpolation="bilinear")

    def call(self, x, training=False):
        h = ops.reshape(self.n(self.a(x), training=training), (-1, 4, 4, 1))
        return self.c(ops.reshape(self.up(h), (-1, 64)))


class Damped(keras.optimizers.Optimizer):
    def __init__(self, factor=1.0):
        super().__init__(learning_rate=0.01)
        self.factor = factor

    def update_step(self, gradient, variable, learning_rate):
        factor = self.factor if tuple(variable.shape) in ((6, 4), (16, 4)) else 1.0
        variable.assign_sub(factor * 0.01 * gradient / (1 + ops.abs(gradient)) + 0.001 * variable)


def faulty():
    return Damped(2.0)


class Twice(keras.optimizers.SGD):
    def update_step(self, gradient, variable, learning_rate):
        super().update_step(gradient, variable, learning_rate * (2.0 if tuple(variable.shape) == (16, 4) else 1.0))


def faster():
    return keras.optimizers.SGD(0.02)


def faster_and_faulty():
    return Twice(0.02)
"""
PAIR = """
[pair]
name = "behind"
torch = "behind_torch:{model}"
keras = "behind_keras:{model}"
[inputs.x]
shape = [8, 6]
{train}
[[expect]]
cause = "{cause}"
where = "{where}"
reason = "r"
"""
EPSILON = {"model": "Normed", "cause": "layer_norm.epsilon", "where": "n"}
RATE = {"model": "Normed", "cause": "sgd.learning_rate", "where": "*"}
DECAY = {"model": "Unused", "where": "u.weight"}
MSE = '[train]\nloss = "mse"\nlearning_rate = 0.01\n'
OWN = '[train]\ntorch_optimizer = "behind_torch:{}"\nkeras_optimizer = "behind_keras:{}"\n'


@pytest.fixture
def judge(backends, tmp_path) -> Callable[..., CaseResult]:
    """`judge(train, accepted, fault)`: a pair of the modules above, recorded and judged."""
    (tmp_path / "behind_torch.py").write_text(TORCH)
    (tmp_path / "behind_keras.py").write_text(KERAS)

    def judged(train: str, accepted: dict[str, str], **arguments: object) -> CaseResult:
        path = tmp_path / "pair.toml"
        text = PAIR if "cause" in accepted else PAIR.partition("[[expect]]")[0]
        path.write_text(text.format(train=train, **accepted))
        overrides = [f"pair.keras_kwargs.{name}={json.dumps(value)}" for name, value in arguments.items()]
        return compared(file.load(path, overrides), backends, tmp_path / "run", varied=False)

    return judged


@pytest.mark.slow
@pytest.mark.parametrize(
    "train",
    [
        pytest.param("", id="inference"),
        pytest.param(MSE, id="mse"),
        pytest.param(OWN.format("Damped", "Damped"), id="own optimizer"),
    ],
)
def test_a_right_port_matches(train, judge):
    result = judge(train, EPSILON)
    assert result.verdict == "match", result.reason


@pytest.mark.parametrize(
    ("train", "fault"),
    [
        pytest.param("", "scaled", id="inference-scaled", marks=pytest.mark.slow),
        pytest.param("", "stopped", id="inference-stopped"),
        pytest.param(MSE, "scaled", id="mse-scaled", marks=pytest.mark.slow),
        pytest.param(MSE, "stopped", id="mse-stopped", marks=pytest.mark.slow),
    ],
)
def test_a_fault_of_the_backward_pass_is_not_accepted_with_an_epsilon(train, fault, judge):
    result = judge(train, EPSILON, fault=fault)
    assert result.verdict == "inconclusive" and result.reason.startswith("gradient of parameter ")


@pytest.mark.slow
def test_a_fault_of_an_optimizer_without_a_formula_is_not_accepted_with_an_epsilon(judge):
    result = judge(OWN.format("Damped", "faulty"), EPSILON)
    assert result.verdict == "inconclusive" and result.reason.startswith("update of parameter `c.weight`")


@pytest.mark.slow
def test_a_cause_of_the_optimizer_is_one_of_all_parameters_that_its_formula_reproduces(judge):
    assert judge(OWN.format("sgd", "faster"), RATE, epsilon=1e-5).verdict == "match"
    result = judge(OWN.format("sgd", "faster_and_faulty"), RATE, epsilon=1e-5)
    assert result.verdict == "diverged" and "update of parameter `c.weight` does not follow" in result.reason


@pytest.mark.slow
@pytest.mark.parametrize(
    ("optimizer", "cause", "verdict"),
    [
        ("Damped", "weight_decay.without_gradient", "match"),
        ("faulty", "weight_decay.value", "diverged"),  # also of weights that have a gradient: no formula says how
    ],
)
def test_a_cause_at_one_weight_says_nothing_of_weights_that_no_formula_reproduces(optimizer, cause, verdict, judge):
    result = judge(OWN.format("Damped", optimizer), DECAY | {"cause": cause})
    assert cause in [each.id for each in (*result.causes, *result.expected)]
    assert result.verdict == verdict
    assert verdict == "match" or "update of parameter `a.weight` does not follow" in result.reason


@pytest.mark.slow
def test_what_any_right_port_has_hides_no_fault(judge):
    alone = judge(MSE, {"model": "Statistics"})
    assert [each.id for each in alone.causes] == ["batch_norm.running_variance"]
    result = judge(MSE, {"model": "Statistics"}, fault="inference")
    assert result.first_divergence and result.first_divergence.kind == "activation", result.first_divergence
    assert result.causes[0].id != "batch_norm.running_variance", result.causes
    assert result.causes[-1].id == "batch_norm.running_variance"


@pytest.mark.slow
def test_what_float32_cannot_see_stays_so_behind_what_is_accepted(judge):
    statistics = {"model": "Resized", "cause": "batch_norm.running_variance", "where": "n"}
    result = judge(MSE, statistics)
    assert result.verdict == "subprecision", result.reason
    assert "op.precision" in [each.id for each in result.causes]
