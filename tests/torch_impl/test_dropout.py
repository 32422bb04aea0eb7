"""Dropout by shared masks: bit by bit those of parity.core.random, in the recorder under every function that drops."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.nn.functional import dropout as dropout_by_name
from torch.utils.checkpoint import checkpoint

from parity.core import random
from parity.core.errors import UsageError
from torch_impl.dropout import Key, dropout, keep, number
from torch_impl.instruments.virtual_functions import virtual_devices
from torch_impl.record.masks import Masks

WORDS = random.mask_key(3, "a.b", 1)
SHAPES = [(), (7,), (5, 4, 12), (2, 3, 5, 5)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("rate", [0.0, 0.1, 0.5, 0.999])
def test_masks_are_the_sources(shape, rate):
    kept = keep(number(torch.zeros(shape)), rate, Key(WORDS, 4, 2))
    assert np.array_equal(kept.numpy(), random.keep(3, "a.b", 1, 4, 2, shape, rate))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("rate", [0.1, 0.37, 1.0])
def test_what_stays_is_scaled_once_rounded(dtype, rate):
    x = torch.linspace(-3, 3, 40).to(dtype).requires_grad_()
    kept = torch.from_numpy(random.keep(3, "a.b", 1, 0, 0, (40,), rate))
    scale = torch.tensor(0.0 if rate == 1.0 else 1 / (1 - rate)).to(dtype)
    dropped = dropout(x, number(x), rate, Key(WORDS, 0, 0))
    assert dropped.dtype == dtype
    if dtype == torch.float64:
        assert torch.allclose(dropped, x * kept * float(scale), rtol=1e-7)
    else:
        assert torch.equal(dropped, x * (kept * scale))
    dropped.sum().backward()
    assert torch.equal(x.grad != 0, kept)


@pytest.mark.parametrize("kind", [nn.RNN, nn.GRU, nn.LSTM])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_a_recurrent_module_drops_between_its_layers(kind, bidirectional):
    model = kind(3, 4, 2, dropout=0.5, bidirectional=bidirectional)
    layers = [kind(size, 4, bidirectional=bidirectional) for size in (3, 8 if bidirectional else 4)]
    for number_, layer in enumerate(layers):
        own = {name.replace("_l1", "_l0"): each for name, each in model.state_dict().items() if f"_l{number_}" in name}
        layer.load_state_dict(own)
    x, masks = torch.randn(5, 2, 3), Masks(5, 0, ordered=True)
    with masks.drawn(model):
        outputs, states = model(x)
    hidden, first = layers[0](x)
    kept = random.keep(5, random.mask_name(hidden.numel()), 0, 0, 0, tuple(hidden.shape), 0.5)
    expected, second = layers[1](2 * hidden * torch.from_numpy(kept))
    assert torch.allclose(outputs, expected, atol=1e-6)
    for all_of, *of_each in zip(
        *([each] if torch.is_tensor(each) else each for each in (states, first, second)), strict=True
    ):
        assert torch.allclose(all_of, torch.cat(of_each), atol=1e-6)
    with masks.drawn(model), pytest.raises(UsageError, match="has dropout of its own, and is given a packed sequence"):
        model(nn.utils.rnn.pack_sequence([torch.randn(2, 3)]))
    assert torch.equal(model.eval()(x)[0], model(x)[0])


class Model(nn.Module):
    """Each way to drop."""

    def __init__(self, rate: float = 0.3):
        super().__init__()
        self.drop = nn.Dropout(rate)
        self.inner = nn.ModuleDict({"inplace": nn.Dropout(rate, inplace=True)})
        self.attention = nn.MultiheadAttention(8, 2, rate)
        self.rate = rate

    def forward(self, x: torch.Tensor, need_weights: bool) -> torch.Tensor:
        x = self.inner["inplace"](self.drop(x))
        x = functional.dropout(functional.dropout(x, self.rate, self.training), self.rate, self.training)
        return self.attention(x, x, x, need_weights=need_weights)[0]


def by_hand(model: Model, x: torch.Tensor, step: int, call: int) -> torch.Tensor:
    """The same from NumPy's masks; attention written out."""

    def dropped(x: torch.Tensor, name: str, call: int) -> torch.Tensor:
        kept = random.keep(5, name, 0, step, call, tuple(x.shape), model.rate)
        return x * torch.from_numpy(kept) / (1 - model.rate)

    for name, i in (("drop", call), ("inner.inplace", call), ("", 2 * call), ("", 2 * call + 1)):
        x = dropped(x, name, i)
    own = model.attention
    projected = functional.linear(x, own.in_proj_weight, own.in_proj_bias).unflatten(-1, (3, 2, 4))
    q, k, v = projected.permute(2, 1, 3, 0, 4)  # (N, heads, T, d / heads) each
    weights = dropped((q @ k.transpose(-2, -1) / 2).softmax(-1), "attention", call)
    return own.out_proj((weights @ v).permute(2, 0, 1, 3).flatten(2))


@pytest.mark.parametrize("need_weights", [True, False])
def test_a_users_model_drops_by_shared_masks(need_weights):
    model, masks, x = Model().double(), Masks(5, 0), torch.randn(6, 3, 8, dtype=torch.float64)
    with masks.drawn(model):
        for step in range(2):
            for call in range(2):
                assert torch.allclose(model(x, need_weights), by_hand(model, x, step, call), atol=1e-12)
            masks.on_step()
        model.eval()
        assert torch.equal(model(x, need_weights), model(x, need_weights))
    model.train()
    assert not torch.equal(model(x, need_weights), model(x, need_weights))  # torch's own again


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"is_causal": True},
        {"scale": 0.3},
        {"attn_mask": torch.randn(5, 5, dtype=torch.float64)},
        {"attn_mask": torch.ones(5, 5, dtype=torch.bool).tril()},
        {"attn_mask": torch.ones(5, 5, dtype=torch.bool).tril(), "enable_gqa": True},
    ],
)
def test_attention_is_torchs_own_but_for_its_masks(options):
    """At a rate at which nothing is dropped from so few weights, nor scaled in a way that could be seen."""
    heads = 4 if "enable_gqa" in options else 2
    query = torch.randn(3, heads, 5, 8, dtype=torch.float64)
    key, value = torch.randn(2, 3, 2, 5, 8, dtype=torch.float64)
    expected = functional.scaled_dot_product_attention(query, key, value, **options)
    with Masks(0, 0).drawn(nn.Identity()):
        got = functional.scaled_dot_product_attention(query, key, value, dropout_p=1e-14, **options)
        same = functional.scaled_dot_product_attention(query, key, value, **options)
    assert torch.allclose(got, expected, atol=1e-12)
    assert torch.equal(same, expected)


@pytest.mark.parametrize("dtype", [torch.bool, torch.float64])
def test_a_query_that_may_see_no_key_gets_zeros_as_in_torch(dtype):
    seen = torch.ones(5, 5, dtype=torch.bool)
    seen[2] = False
    mask = seen if dtype == torch.bool else torch.zeros(5, 5, dtype=dtype).masked_fill(~seen, -torch.inf)
    query = torch.randn(2, 5, 8, dtype=torch.float64, requires_grad=True)
    with Masks(0, 0).drawn(nn.Identity()):
        got = functional.scaled_dot_product_attention(query, query, query, mask, 1e-14)
    got.sum().backward()
    assert torch.equal(got[:, 2], torch.zeros(2, 8, dtype=torch.float64))
    assert query.grad.isfinite().all()


class Imported(nn.Module):
    """Drops by the function's name in this file."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return dropout_by_name(x, 0.5)


def test_a_function_imported_by_name_drops_by_shared_masks():
    own = dropout_by_name
    model = nn.Sequential(Imported())
    with pytest.raises(ZeroDivisionError), Masks(0, 0).drawn(model):
        assert np.array_equal(model(torch.ones(90)).numpy() != 0, random.keep(0, "0", 0, 0, 0, (90,), 0.5))
        raise ZeroDivisionError
    assert dropout_by_name is own


@pytest.mark.parametrize(
    ("model", "shape", "channels"),
    [
        (nn.Dropout1d, (2, 3, 4), (2, 3)),
        (nn.Dropout1d, (3, 4), (3,)),
        (nn.Dropout2d, (2, 3, 4, 5), (2, 3)),
        (nn.Dropout2d, (2, 3, 4), (2, 3)),
        (nn.Dropout3d, (3, 4, 5, 6), (3,)),
    ],
)
@pytest.mark.filterwarnings("ignore:dropout2d")
@pytest.mark.parametrize("inplace", [False, True])
def test_channels_are_dropped_whole(model, shape, channels, inplace):
    x = torch.ones(shape)
    with Masks(0, 0).drawn(drop := nn.Sequential(model(0.5, inplace))):
        got = drop(x)
    kept = random.keep(0, "0", 0, 0, 0, channels, 0.5).reshape(channels + (1,) * (len(shape) - len(channels)))
    assert np.array_equal(got.numpy(), np.broadcast_to(2.0 * kept, shape)) and (got is x) == inplace


@pytest.mark.parametrize(("model", "shape"), [(nn.AlphaDropout(0.1), (2, 3)), (nn.FeatureAlphaDropout(0.1), (2, 3))])
def test_other_kinds_are_refused_in_training(model, shape):
    x = torch.ones(shape)
    with Masks(0, 0).drawn(model):
        with pytest.raises(UsageError, match=r"masks shared by both frameworks are available for nn\.Dropout"):
            model(x)
        model.eval()
        assert torch.equal(model(x), x)


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_recomputed_activations_are_refused(use_reentrant):
    model, x = nn.Dropout(0.5), torch.ones(3, requires_grad=True)
    with Masks(0, 0).drawn(model):
        dropped = checkpoint(model, x, use_reentrant=use_reentrant)
        with pytest.raises(
            UsageError, match=r"torch: \(model\): activations are recomputed .*; build the model without"
        ):
            dropped.sum().backward()


def test_an_error_in_a_forward_leaves_no_name_behind():
    model, masks = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5)), Masks(0, 0)
    with masks.drawn(model):
        with pytest.raises(RuntimeError):
            model(torch.ones(3, 5))
        x = torch.ones(40)
        kept = random.keep(0, "", 0, 0, 0, (40,), 0.5)
        assert np.array_equal(functional.dropout(x).numpy() != 0, kept)


def test_each_device_of_data_parallel_is_a_replica():
    x = torch.ones(6, 50)
    with virtual_devices(torch.device("cpu")):
        model = nn.DataParallel(nn.Sequential(nn.Dropout(0.4)), [torch.device("lazy", 0), torch.device("lazy", 1)])
        with Masks(0, None).drawn(model.module):
            dropped = model(x.to(torch.device("lazy", 0))).cpu()
    expected = [random.keep(0, "0", replica, 0, 0, (3, 50), 0.4) for replica in (0, 1)]
    assert np.array_equal(dropped.numpy() != 0, np.concatenate(expected))
