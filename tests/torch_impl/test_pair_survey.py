"""What torch tells of its half of a pair."""

import functools
from pathlib import Path

import numpy as np
import pytest
import torch
from pair_models import MLP, Words
from pair_runs import case, drawn, surveyed
from torch import nn

from parity.core import random
from parity.core.errors import BackendError
from parity.runtime import survey
from parity.runtime.construction import PART
from torch_impl.record import tree
from torch_impl.record.pair.sources import repeated_draws

X4 = {"x": {"shape": [2, 5, 4]}}


def test_the_values_are_the_models_own_and_constants_are_shaken(tmp_path):
    weights = surveyed(case("MLP"), tmp_path).weights
    torch.manual_seed(0)
    own = MLP()
    assert np.array_equal(weights["first.weight"], own.first.weight.detach().numpy())
    assert weights["first.weight"].dtype == np.float32
    n = random.normal(0, "start/norm.weight", (4,))
    assert np.array_equal(weights["norm.weight"], (1 + n / 8).astype(np.float32))
    n = random.normal(0, "start/norm.running_mean", (4,))
    assert np.array_equal(weights["norm.running_mean"], (n / 64).astype(np.float32))
    assert np.array_equal(weights["table"], np.arange(4) / 3)  # float64: no float32 has thirds so exact
    assert weights["order"].tolist() == [3, 2, 1, 0]


def test_what_the_builder_gives_to_what_is_not_trained_is_kept(tmp_path):
    made = case("Frozen", X4)
    weights = surveyed(made, tmp_path).weights
    built, exact = (survey.built(tmp_path / "survey", file) for file in (survey.BUILT, survey.EXACT))
    assert list(built) == list(exact) == ["drawn", "zeros", "table"]
    assert built["zeros"].tolist() == [0.0] * 4 and weights["zeros"].any()
    assert built["table"].dtype == np.float32 and weights["table"].dtype == exact["table"].dtype == np.float64
    first, second = drawn(made, tmp_path / "seeds", 0, 1)
    assert list(first) == ["drawn", "zeros", "table"]
    assert {name: np.array_equal(first[name], built[name]) for name in built} == dict.fromkeys(built, True)
    assert [name for name in built if not np.array_equal(first[name], second[name])] == ["drawn"]
    assert [list(build) for build in drawn(made, tmp_path / "seeds", 7, tables=["table"])] == [["table"]]


def test_frozen_values_that_the_users_code_has_set_are_chosen(tmp_path):
    weights = surveyed(case("Chosen", X4), tmp_path).told.weights
    assert [weight.name for weight in weights if weight.chosen] == ["own", "set.weight"]


def test_only_constants_are_shaken(tmp_path):
    weights = surveyed(case("Bare", {"x": {"shape": [2, 3]}}), tmp_path).weights
    assert len(np.unique(weights["zeros"])) > 3
    assert abs(weights["zeros"]).max() <= 6 / 64
    assert 0.25 <= weights["ones"].min() < 1 < weights["ones"].max() <= 1.75
    assert np.array_equal(weights["mixed"], np.float32([1, 2, 1, 2, 1 / 3]))


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_values_are_what_the_precision_holds(tmp_path, precision):
    weights = surveyed(case("Bare", {"x": {"shape": [2, 3]}}, precision=precision), tmp_path).weights
    for name, array in weights.items():
        assert np.array_equal(random.representable(array.astype(np.float64), precision), array), name


def test_weights_that_are_kept_are_the_builders_own(tmp_path):
    weights = surveyed(
        case("Bare", {"x": {"shape": [2, 3]}}, keeps_weights=True, precision="bfloat16"), tmp_path
    ).weights
    assert not weights["zeros"].any() and (weights["ones"] == 1).all()
    assert weights["mixed"].tolist() == [1, 2, 1, 2, 1 / 3]  # float64: float32 holds no third


def test_large_parameters_are_drawn_in_part_where_they_are_replaced():
    with repeated_draws():
        large, small, frozen = nn.Linear(512, 256), nn.Linear(16, 16), torch.empty(512, 256).normal_()
    own = large.weight.detach().reshape(-1)
    assert torch.equal(own[:-PART], own[PART:]) and 0.02 < own.std() < 0.03
    assert len(own[:PART].unique()) > PART // 2 and len(small.weight.unique()) > 250
    assert not torch.equal(frozen.reshape(-1)[:-PART], frozen.reshape(-1)[PART:])  # no parameter
    whole = nn.Linear(512, 256).weight.detach().reshape(-1)
    assert not torch.equal(whole[:-PART], whole[PART:])


def test_a_transformer_layer_is_not_called_whole(tmp_path):
    """Its fast path, taken in inference, would call no module within it."""
    kwargs = {"d_model": 4, "nhead": 2, "dim_feedforward": 8, "batch_first": True}
    made = case("torch.nn:TransformerEncoderLayer", {"src": {"shape": [2, 5, 4]}}, kwargs=kwargs)
    assert "linear1" in surveyed(made, tmp_path).told.called


def test_a_model_built_otherwise_each_time_is_refused(tmp_path):
    with pytest.raises(BackendError, match=r"built anew with other parameters or buffers: linears\.1\.bias"):
        surveyed(case("Restless"), tmp_path)


@pytest.mark.parametrize(
    ("module", "kind", "facts"),
    [
        (functools.partial(nn.Conv2d, 4, 8, 3, stride=2, groups=2), "conv2d", {"groups": 2, "stride": [2, 2]}),
        (functools.partial(nn.Conv1d, 4, 4, 3, padding="same", groups=4), "conv1d", {"groups": 4, "padding": "same"}),
        (functools.partial(nn.ConvTranspose3d, 4, 4, 3), "conv_transpose3d", {"groups": 1}),
        (functools.partial(nn.BatchNorm1d, 4, eps=1e-3), "batch_norm", {"epsilon": 1e-3}),
        (functools.partial(nn.GroupNorm, 2, 4), "group_norm", {"groups": 2}),
        (functools.partial(nn.RMSNorm, 4), "rms_norm", {}),
        (functools.partial(nn.InstanceNorm2d, 4), "instance_norm", {}),
        (functools.partial(nn.LSTM, 4, 4, 2, bidirectional=True), "lstm", {"layers": 2, "gates": "ifgo"}),
        (functools.partial(nn.GRU, 4, 4), "gru", {"gates": "rzn", "bidirectional": False}),
        (functools.partial(nn.RNN, 4, 4), "rnn", {"layers": 1}),
        (functools.partial(nn.MultiheadAttention, 4, 2), "attention", {"heads": 2}),
        (functools.partial(nn.GELU, "tanh"), "gelu", {"form": "tanh"}),
        (nn.GELU, "gelu", {"form": "exact"}),
        (nn.SiLU, "silu", {}),
        (nn.PReLU, "prelu", {}),
        (functools.partial(nn.MaxPool1d, 2), "max_pool1d", {"stride": 2}),
        (nn.Tanh, "Tanh", {}),
        (nn.ReLU6, "ReLU6", {}),  # not what a relu computes
        (Words, "Words", {}),
    ],
)  # fmt: skip
def test_kinds_and_facts(module, kind, facts):
    made = module()
    assert tree.kind(made) == kind
    assert tree.facts(made).items() >= facts.items()


def test_kinds_of_others_libraries():
    Conv1D = type("Conv1D", (nn.Module,), {"__module__": "transformers.pytorch_utils"})
    Other = type("Conv1D", (nn.Module,), {"__module__": "my.convolutions"})
    LlamaRMSNorm = type("LlamaRMSNorm", (nn.Module,), {})
    assert [tree.kind(one()) for one in (Conv1D, Other, LlamaRMSNorm)] == ["linear_io", "Conv1D", "rms_norm"]


def test_facts_are_no_objects():
    """A user's attribute may have any value."""
    module = nn.Module()
    module.groups, module.stride, module.num_heads, module.eps = nn.ModuleList(), torch.ones(2), 3, None
    assert tree.facts(module) == {"heads": 3}


def test_what_training_would_draw_and_change(tmp_path):
    rehearsal = surveyed(case("Rehearsed"), tmp_path)[0].rehearsal
    assert rehearsal.masks == [5 * 4, 5 * 2]
    assert rehearsal.drawn == {"first": 0, "drop": 1, "none": 1, "last": 1}
    assert rehearsal.changing == ["mean"]  # what every pass makes anew is none that changes


def test_a_model_that_cannot_be_rehearsed_is_surveyed_all_the_same(tmp_path):
    told = surveyed(case("Rehearsed", kwargs={"fails": True}), tmp_path)[0]
    assert told.rehearsal.drawn == {} and told.called


def test_where_the_user_makes_each_module(tmp_path):
    told, *_ = surveyed(case("MLP"), tmp_path)
    frames = {module.path: module.made.calls[0] for module in told.modules}
    text = Path(frames["first"].file).read_text().splitlines()
    called = {path: text[frame.line - 1][frame.column : frame.end_column] for path, frame in frames.items() if path}
    assert called["norm"].startswith("nn.BatchNorm1d(") and called["first"].startswith("nn.Linear(")
    assert told.made("first").positional[:2] == ["in_features", "out_features"]
