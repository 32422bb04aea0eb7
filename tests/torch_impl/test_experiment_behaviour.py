"""Answers of torch modules to probes, and how differences between two modules are described."""

import threading

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from parity.diagnose.experiment import probes
from parity.diagnose.experiment.behaviour import describe
from parity.diagnose.experiment.probes import Responses
from torch_impl.experiment.behaviour import answered, copied, inputs

X = torch.linspace(-2.0, 3.0, 48, dtype=torch.float64).reshape(2, 3, 8).sin()
IMAGES = torch.linspace(-2.0, 3.0, 150, dtype=torch.float64).reshape(2, 3, 5, 5).sin()


def answers(module, *args, canonical=None, **kwargs) -> Responses:
    return answered(module, args, kwargs, canonical or inputs(args, kwargs))


ACTIVATIONS = [
    (nn.LeakyReLU(), nn.LeakyReLU(0.3), "torch 0.01 x below zero, keras 0.3 x"),
    (nn.ReLU(), nn.ReLU6(), "keras 0 below zero, x from zero to 6 and 6 above 6"),
    (nn.GELU(), nn.GELU("tanh"), "torch exact GELU, keras GELU by tanh"),
    (nn.ELU(), nn.CELU(0.5), "torch ELU, keras ELU with 0.5 for alpha and 0.5 for the width"),
    (nn.SELU(), nn.SiLU(), "torch 1.0507 times ELU with 1.67326 for alpha, keras SiLU"),
    (nn.Hardswish(), nn.Mish(), "torch hard swish, keras mish"),
    (nn.Hardsigmoid(), nn.Sigmoid(), "torch 0 below -3, 0.166667 x + 0.5 from -3 to 3 and 1 above 3, keras sigmoid"),
    (nn.Softplus(), nn.Softplus(beta=2), "torch softplus, keras softplus with 2 for beta"),
    (nn.Hardtanh(), nn.Hardtanh(-1, 2), "keras -1 below -1, x from -1 to 2 and 2 above 2"),
    (nn.Softsign(), nn.Tanhshrink(), "torch softsign, keras x - tanh(x)"),
    (nn.LogSigmoid(), nn.Tanh(), "torch log-sigmoid, keras tanh"),
]


@pytest.mark.parametrize(("one", "other", "words"), ACTIVATIONS)
def test_activations_are_told_by_their_curves(one, other, words):
    assert words in describe(answers(one, X), answers(other, X))


def conv(**settings) -> nn.Conv2d:
    torch.manual_seed(0)
    return nn.Conv2d(3, 3, 3, **settings).double()


@pytest.mark.parametrize(
    ("one", "other", "x", "words"),
    [
        (nn.LayerNorm(8).double(), nn.RMSNorm(8).double(), X, "keras gives another output when 1 is added"),
        (nn.Softmax(-1), nn.Softmax(1), X, "keras looks at more than one position along axis 1"),
        (conv(padding=1), conv(padding=1, bias=False), IMAGES, "torch adds the same numbers whatever the input"),
        (conv(padding=1), nn.Sequential(conv(padding=1), nn.ReLU()), IMAGES, "torch is linear with a constant added"),
        (nn.MaxPool2d(3, 1, 1), nn.AvgPool2d(3, 1, 1), IMAGES, "torch is not linear, keras is linear"),
        (nn.BatchNorm1d(3).double(), nn.LayerNorm(8).double(), X, "keras looks at one row of the batch at a time"),
        (nn.Dropout(0.5), nn.Identity(), X, "torch gives another output when it is called again"),
    ],
)
def test_layers_are_told_by_what_they_do(one, other, x, words):
    assert words in describe(answers(one, x), answers(other, x))


def test_a_causal_mask_is_told():
    def attention(causal):
        return lambda x: functional.scaled_dot_product_attention(x, x, x, is_causal=causal)

    words = describe(answers(attention(False), X), answers(attention(True), X))
    assert "keras looks at a position along axis 1 and those before it" in words


def test_inputs_are_found_in_the_arguments_whatever_their_axes_and_names():
    def last(x, *, scale, mask):
        return (functional.leaky_relu(x, 0.3) * scale).where(mask, x).permute(0, 3, 1, 2).numpy()

    mask = torch.ones(5, dtype=torch.bool)
    canonical = [*inputs((IMAGES,), {}), mask.numpy()]
    own = answered(last, (IMAGES.permute(0, 2, 3, 1),), {"scale": 1.0, "mask": mask[:3]}, canonical)
    one = answered(nn.LeakyReLU(), (IMAGES,), {}, canonical)
    assert "torch 0.01 x below zero, keras 0.3 x" in describe(one, own)
    np.testing.assert_array_equal(own.outputs["given"], functional.leaky_relu(IMAGES, 0.3).numpy())


def test_integers_of_any_size_and_complex_numbers_are_no_obstacle(tmp_path):
    def rows(x, ids, turn):
        return x[ids.long()] * turn.real

    args = X, torch.tensor([0, 1], dtype=torch.int16), torch.ones(8, dtype=torch.complex128)
    assert [array.dtype.name for array in inputs(args, {})] == ["float64", "int64"]
    probes.write(answers(rows, *args), tmp_path)
    words = describe(probes.read(tmp_path), answers(lambda *given: rows(*given) * 2.0, *args))
    assert words == "both act on each element alone; torch x, keras 2 x"


class Cache:
    """What a module may be given, and change: the keys of the tokens before."""

    def __init__(self, *keys: torch.Tensor) -> None:
        self.keys = list(keys)


def test_what_a_module_may_change_is_copied() -> None:
    weight = torch.ones(3, requires_grad=True)
    computed, module = 2.0 * weight, nn.Linear(3, 3)
    cache, given, same = copied((Cache(computed), {"x": computed}, module))
    assert same is module
    assert torch.equal(cache.keys[0], computed) and cache.keys[0] is not computed and cache.keys[0].is_leaf
    assert given["x"] is not computed and given["x"].is_leaf and given["x"].requires_grad
    cache.keys.append(weight)
    with torch.no_grad():
        cache.keys[0].zero_()
    assert torch.equal(computed, torch.full((3,), 2.0))


def test_what_cannot_be_copied_is_shared() -> None:
    lock = threading.Lock()
    assert copied([lock])[0] is lock
