"""The ops of a torch module's call: their lines, what they take, and where two ways to write a module part."""

import inspect
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from parity.diagnose.experiment.first_difference import Difference, first_difference
from parity.diagnose.experiment.ops import Recording
from torch_impl.experiment.call import recorded
from torch_impl.instruments import source

X = torch.linspace(-2.0, 3.0, 48, dtype=torch.float64).reshape(2, 3, 8).sin()


def line_of(function: Callable, text: str) -> str:
    """The end of the place of a line of a function's source."""
    lines, first = inspect.getsourcelines(function)
    return f"test_experiment_ops.py:{first + next(number for number, line in enumerate(lines) if text in line)}"


def parting(one: Callable, other: Callable, x: torch.Tensor = X) -> Difference | None:
    return first_difference(recorded(lambda: one(x)), recorded(lambda: other(x)))


def names(recording: Recording) -> list[str]:
    return [op.name for op in recording.calls.ops if op.kind != "moved"]


def by_hand(x: torch.Tensor) -> torch.Tensor:
    inner = 0.7978845608028654 * (x + 0.044715 * x**3)
    return 0.5 * x * (1.0 + inner.tanh())


def test_ops_are_recorded_in_order_with_their_lines():
    recording = recorded(lambda: by_hand(X))
    assert names(recording) == ["pow", "mul", "add", "mul", "mul", "tanh", "add", "mul"]
    assert recording.calls.ops[1].line.endswith(line_of(by_hand, "0.044715"))
    assert recording.calls.ops[-1].line.endswith(line_of(by_hand, "return"))
    np.testing.assert_array_equal(recording.arrays[recording.calls.returned[0]], by_hand(X).numpy())


def test_a_softmax_is_one_op_and_so_is_a_norm():
    assert names(recorded(lambda: X.softmax(-1))) == ["softmax"]
    assert names(recorded(lambda: functional.layer_norm(X, (8,)))) == ["native_layer_norm"]


def test_an_ops_inputs_are_the_outputs_of_earlier_ops_under_autograd_too():
    weight = nn.Parameter(torch.eye(8, dtype=torch.float64) + 0.1)
    recording = recorded(lambda: (X.transpose(0, 1) @ weight.t()).relu())
    made = {number for op in recording.calls.ops for number in op.outputs}
    given = [number for op in recording.calls.ops for number in op.inputs if number not in made]
    assert len(given) == 2  # the input and the weight, not a view of it


def test_a_fused_op_and_one_written_out_are_no_difference():
    assert parting(by_hand, lambda x: functional.gelu(x, approximate="tanh")) is None
    found = parting(by_hand, functional.gelu)
    assert found is not None and found.keras is not None and found.keras.name == "gelu"


class Attention(nn.Module):
    """Attention of two heads, written out, with what may go wrong in it."""

    def __init__(self, mha: nn.MultiheadAttention, scale: float = 0.5, axis: int = -1) -> None:
        super().__init__()
        self.mha, self.scale, self.axis = mha, scale, axis

    def forward(self, x):
        packed = functional.linear(x, self.mha.in_proj_weight, self.mha.in_proj_bias)
        query, key, value = (each.unflatten(-1, (2, 4)) for each in packed.chunk(3, -1))
        scores = torch.einsum("bqhd,bkhd->bhqk", query, key) * self.scale
        weights = scores.softmax(self.axis)
        mixed = torch.einsum("bhqk,bkhd->bqhd", weights, value).flatten(-2)
        return self.mha.out_proj(mixed)


@pytest.fixture
def mha() -> nn.MultiheadAttention:
    torch.manual_seed(0)
    return nn.MultiheadAttention(8, 2, batch_first=True).double()


@pytest.mark.parametrize("gradients", [True, False])
def test_attention_written_out_is_no_difference(mha, gradients):
    with torch.set_grad_enabled(gradients):
        assert parting(lambda x: mha(x, x, x, need_weights=False)[0], Attention(mha)) is None
        assert parting(Attention(mha), lambda x: mha(x, x, x)[0]) is None


def in_place(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y[:, 1:] += x[:, :-1]
    y.relu_()
    return y * 2.0


def out_of_place(x: torch.Tensor) -> torch.Tensor:
    shifted = torch.cat([torch.zeros_like(x[:, :1]), x[:, :-1]], 1)
    return (x + shifted).relu() * 2.0


def never_clamped(x: torch.Tensor) -> torch.Tensor:
    shifted = torch.cat([torch.zeros_like(x[:, :1]), x[:, :-1]], 1)
    return (x + shifted) * 2.0


def test_what_is_written_in_place_is_followed():
    assert parting(in_place, out_of_place) is None
    found = parting(in_place, never_clamped)
    assert found is not None and found.torch is not None and found.torch.name == "relu"
    assert found.torch.line.endswith(line_of(in_place, "relu_"))
    assert found.keras is not None and found.keras.name == "mul"


def test_a_batch_norm_that_counts_changes_only_its_statistics():
    norm, other = nn.BatchNorm1d(3).double(), nn.BatchNorm1d(3, eps=1e-3).double()
    assert parting(norm, norm) is None
    found = parting(norm, other)
    assert found is not None and found.torch is not None and "batch_norm" in found.torch.name


def test_where_no_user_calls_it_a_librarys_line_is_told(monkeypatch):
    file = Path(msgspec.__file__).parent / "layers.py"
    library = {"x": X}
    exec(compile("def call():\n    return x + 1.0\n", file, "exec"), library)
    monkeypatch.setattr(source._LINES, "line", lambda: "")
    assert [op.line for op in recorded(library["call"]).calls.ops] == ["msgspec/layers.py:2"]


def test_a_failing_replay_raises_its_own_error_and_ends_the_recording():
    with pytest.raises(ZeroDivisionError):
        recorded(lambda: 1 / 0)
    assert names(recorded(lambda: X + 1.0)) == ["add"]


def test_a_replay_may_return_the_numbers_of_a_tensor():
    recording = recorded(lambda: ((by_hand(X), X + 1.0)[0] * 1.0).permute(2, 0, 1).numpy())
    assert recording.calls.returned == recording.calls.ops[-2].outputs  # the last but one
