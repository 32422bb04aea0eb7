"""What a rank notes so that it can be compared with others; and dropout functions in eval mode."""

import pytest
import torch
from observed import line, observe
from torch import nn
from torch.nn import functional

from parity.doctor.evidence.ops import Dropped
from torch_impl.instruments import values

pytestmark = pytest.mark.usefixtures("gpus")

X = torch.arange(12.0).reshape(4, 3)


@pytest.fixture
def two_ranks(monkeypatch):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")


def build() -> nn.Module:
    net = nn.Linear(3, 1).to("cuda:0")
    net.optimizer = torch.optim.SGD(net.parameters(), lr=0.5, momentum=0.9)
    return net


def train(net, batch):
    net.optimizer.zero_grad()
    net(batch["x"].to("cuda:0")).mean().backward()
    net.weight.grad /= 2
    torch.nn.utils.clip_grad_norm_(net.parameters(), 1e-3)
    net.optimizer.step()


def test_one_rank_notes_nothing():
    assert observe(build, train, 2, x=X).steps[0].comparable is None


def test_parameters_and_changes_are_noted_in_order(two_ranks):
    first, second = (step.comparable for step in observe(build, train, 2, x=X).steps)
    seen = [(change.parameter, change.what, change.source) for change in first.changes]
    divided, clipped, stepped = (line(train, text) for text in ("/= 2", "clip_grad_norm_", "optimizer.step()"))
    names = ["weight", "bias"]
    assert seen == [
        ("weight", "gradient", divided),
        *((name, "gradient", clipped) for name in names),
        *((name, "update", stepped) for name in names),
    ]
    assert first.changes[0].result.norm == first.changes[0].gradient.norm / 2
    assert first.changes[1].gradient == first.changes[0].result
    assert first.changes[3].gradient == first.changes[1].result
    assert first.changes[3].result == second.used["weight"] != first.used["weight"]


def test_what_is_used_is_what_the_backward_pass_begins_with(two_ranks):
    def gathered(net, batch):
        with torch.no_grad():
            net.weight.fill_(0.25)
        train(net, batch)

    used = observe(build, gathered, x=X).steps[0].comparable.used
    assert used["weight"].norm == pytest.approx(0.25 * 3**0.5) and used["weight"].constant
    assert used["bias"].norm != 0


def test_numbers_tell_tensors_apart():
    ordered = torch.arange(1.0, 9.0)
    assert values.numbers(ordered) == values.numbers(ordered.clone().reshape(2, 4))
    assert values.numbers(ordered) != values.numbers(ordered.flip(0))
    assert values.numbers(ordered).norm == values.numbers(ordered.flip(0)).norm
    assert values.numbers(torch.ones(3)).constant and not values.numbers(ordered).constant


def test_blocks_of_a_large_tensor_are_told_apart(monkeypatch):
    monkeypatch.setattr(values, "BLOCK", 4)
    ordered = torch.arange(1.0, 9.0)
    assert values.numbers(ordered).mark != values.numbers(ordered.reshape(2, 4).flip(0)).mark


class Drops(nn.Module):
    """Calls a function with itself and its input."""

    def __init__(self, function):
        super().__init__()
        self.function, self.dropout = function, nn.Dropout(0.5)

    def forward(self, x):
        return self.function(self, x)


def called(net: nn.Module) -> list[Dropped]:
    return observe(lambda: net, lambda net, batch: net(batch["x"]), x=X.reshape(1, 1, 4, 3)).steps[0].dropped


def attended(self, x):
    return functional.scaled_dot_product_attention(x, x, x, dropout_p=0.1)


def dropped(self, x):
    return functional.dropout(x, 0.3)


def alive(self, x):
    self.dropout.train()
    return self.dropout(x)


@pytest.mark.parametrize(
    ("function", "rate", "fix"),
    [
        (
            attended,
            0.1,
            "return functional.scaled_dot_product_attention(x, x, x, dropout_p=0.1 if self.training else 0.0)",
        ),
        (dropped, 0.3, "return functional.dropout(x, 0.3, training=self.training)"),
        (lambda self, x: torch.nn.functional.dropout2d(x), 0.5, "training=self.training"),
    ],
)
def test_dropout_in_eval_mode_is_noted_with_its_correction(function, rate, fix):
    (call,) = called(Drops(function).eval())
    assert call.rate == rate
    assert fix in call.mended.fix


@pytest.mark.parametrize(
    "function",
    [
        lambda self, x: self.dropout(x),
        lambda self, x: functional.dropout(x, 0.3, training=self.training),
        lambda self, x: functional.dropout(x, 0.0),
        lambda self, x: functional.scaled_dot_product_attention(x, x, x),
        alive,
    ],
)
def test_dropout_that_is_off_or_was_switched_on_is_not_noted(function):
    assert called(Drops(function).eval()) == []


def test_dropout_in_training_is_not_noted():
    assert called(Drops(dropped)) == []
