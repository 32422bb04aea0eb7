"""Faults of what a model computes: its layers, their order, initial parameters, dropout and a lower precision."""

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from parity.core.arrays import Floats
from parity.core.patches import setting
from parity.selftest.mutate import Patches, constant, loaded, replaced, together, wrapped
from torch_impl.dropout import keep
from torch_impl.models.perceptrons import SimpleBlock
from torch_impl.models.residual_block import ResidualBlock
from torch_impl.models.transformer import Transformer
from torch_impl.record import masks, weights
from torch_impl.record.masks import Masks
from torch_impl.strategies import single

Function = Callable[..., torch.Tensor]
_of = partial(loaded, weights)
_attention = partial(wrapped, functional, "scaled_dot_product_attention")
_linear = partial(replaced, nn.Linear, "forward")


def unused(*parameters: nn.Parameter) -> torch.Tensor:
    """Return zero, so that parameters that a fault leaves out still have a gradient: zeros."""
    return sum(parameter.sum() for parameter in parameters) * 0


def _frozen_statistics(forward: Function, norm: nn.BatchNorm2d, x: torch.Tensor) -> torch.Tensor:
    """Leave the buffers unchanged, as momentum=0 does."""
    with mock.patch.object(norm, "momentum", 0.0):
        return forward(norm, x)


def _biased_variance(forward: Function, norm: nn.BatchNorm2d, x: torch.Tensor) -> torch.Tensor:
    previous = norm.running_var.clone()
    outputs = forward(norm, x)
    if norm.training:
        new = norm.running_var - (1 - norm.momentum) * previous
        norm.running_var.data -= new / (x.numel() / x.size(1))
    return outputs


def _key_dim_of_all_heads(attention: Function, query: torch.Tensor, *args: Any) -> torch.Tensor:
    """Scale by 1 / sqrt(d) instead of 1 / sqrt(d / heads)."""
    _, heads, _, key_dim = query.shape
    return attention(query, *args, scale=1 / math.sqrt(heads * key_dim))


def _one_word_ahead(
    attention: Function, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
    mask: torch.Tensor | None = None, dropout: float = 0.0, is_causal: bool = False,
) -> torch.Tensor:  # fmt: skip
    """Let every word see the next one too."""
    if is_causal:
        mask = torch.ones(query.size(-2), key.size(-2), dtype=torch.bool).tril(1)
    return attention(query, key, value, mask, dropout)


def _skipped_final_norm(
    forward: Function, model: nn.TransformerEncoder | nn.TransformerDecoder, *args: Any, **kwargs: Any
) -> torch.Tensor:
    with mock.patch.object(model.norm, "forward", lambda x: x + unused(model.norm.weight, model.norm.bias)):
        return forward(model, *args, **kwargs)


def _sinusoids(x: torch.Tensor) -> torch.Tensor:
    length, _, width = x.shape
    angles = np.arange(length)[:, None] / 1e4 ** (np.arange(0, width, 2) / width)
    return torch.tensor(np.concatenate([np.sin(angles), np.cos(angles)], axis=1), dtype=x.dtype)[:, None]


def _no_shortcut_around_attention(
    layer: nn.TransformerEncoderLayer, x: torch.Tensor, *args: Any, **kwargs: Any
) -> torch.Tensor:
    x = layer.norm1(layer._sa_block(x, None, None))
    return layer.norm2(x + layer._ff_block(x))


def _no_shortcut(model: ResidualBlock, x: torch.Tensor) -> torch.Tensor:
    main = model.relu(model.bn1(model.conv1(x)))
    main = model.bn2(model.conv2(main))
    return model.relu(main + 0 * model.shortcut(x))


def _value_for_key(packed: Floats) -> Floats:
    query, key, value = np.split(packed, 3)
    return np.concatenate([query, value, key])


def _frameworks_own(masks: Masks, model: nn.Module) -> AbstractContextManager:
    torch.manual_seed(masks.seed)
    return nullcontext()


@torch.no_grad()
def _in_training(model: nn.Module, inputs: tuple[torch.Tensor, ...]) -> torch.Tensor:
    torch.manual_seed(0)
    return model(*inputs)


def _product_in(
    dtype: torch.dtype, linear: Function, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
) -> torch.Tensor:
    product = linear(x.to(dtype), weight.to(dtype)).to(x.dtype)
    return product if bias is None else product + bias


def _ten_bits(x: torch.Tensor) -> torch.Tensor:
    """Round x to 10 bits, as TF32 rounds the factors of a product.

    `rounded - x` is exact, as neighbouring floats subtract exactly: the sum is the rounded value, with x's gradient.
    """
    with torch.no_grad():
        rounded = ((x.contiguous().view(torch.int32) + (1 << 12)) & ~((1 << 13) - 1)).view(torch.float32)
    return x + (rounded - x).detach()


def _outputs_in(dtype: torch.dtype, function: Function, x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    return function(x, *args, **kwargs).to(dtype).to(x.dtype)


def _tf32(backend: Any) -> AbstractContextManager[None]:
    return setting(lambda: backend.allow_tf32, partial(setattr, backend, "allow_tf32"), True)


FAULTS: dict[str, Patches] = {
    "layer_norm.epsilon": constant(nn.LayerNorm, "eps", 1.001e-5),
    "layer_norm.small_epsilon": constant(nn.LayerNorm, "eps", 1e-6),
    "group_norm.epsilon": constant(nn.GroupNorm, "eps", 1e-3),
    "batch_norm.epsilon": constant(nn.BatchNorm2d, "eps", 1e-3),
    "batch_norm.momentum": constant(nn.BatchNorm2d, "momentum", 0.01),
    "batch_norm.running_variance": wrapped(nn.BatchNorm2d, "forward", _biased_variance),
    "batch_norm.mode": replaced(
        nn.BatchNorm2d,
        "forward",
        lambda norm, x: functional.batch_norm(
            x, norm.running_mean, norm.running_var, norm.weight, norm.bias, eps=norm.eps
        ),
    ),
    "batch_norm.frozen": wrapped(nn.BatchNorm2d, "forward", _frozen_statistics),
    "linear.transposed": _linear(lambda linear, x: functional.linear(x, linear.weight.T, linear.bias)),
    "linear.bias": _linear(lambda linear, x: functional.linear(x, linear.weight) + unused(linear.bias)),
    "conv2d.padding_mode": constant(nn.Conv2d, "padding_mode", "replicate"),
    "gelu.form": constant(nn.GELU, "approximate", "tanh"),
    "softmax.axis": constant(nn.Softmax, "dim", 0),
    "relu.dropped": replaced(nn.ReLU, "forward", lambda relu, x: x),
    "relu.slope": replaced(nn.ReLU, "forward", lambda relu, x: functional.leaky_relu(x, 0.01)),
    "relu.cap": replaced(nn.ReLU, "forward", lambda relu, x: x.clamp(0, 1)),
    "embedding.padding_idx": constant(nn.Embedding, "padding_idx", 0),
    "embedding.frequency": constant(nn.Embedding, "scale_grad_by_freq", True),
    "attention.key_dim": _attention(_key_dim_of_all_heads),
    "attention.batch_first": constant(nn.Transformer, "batch_first", True),
    "attention.mask": constant(Transformer, "causal", False),
    "attention.mask_offset": _attention(_one_word_ahead),
    "transformer.final_norm": together(
        wrapped(nn.TransformerEncoder, "forward", _skipped_final_norm),
        wrapped(nn.TransformerDecoder, "forward", _skipped_final_norm),
    ),
    "transformer.norm_order": constant(nn.Transformer, "norm_first", True),
    "transformer.activation": constant(nn.Transformer, "activation", functional.gelu),
    "transformer.position": wrapped(
        nn.TransformerEncoderLayer,
        "forward",
        lambda forward, layer, x, *args, **kwargs: forward(layer, x + _sinusoids(x), *args, **kwargs),
    ),
    "transformer.shortcut": replaced(nn.TransformerEncoderLayer, "forward", _no_shortcut_around_attention),
    "residual.shortcut": replaced(ResidualBlock, "forward", _no_shortcut),
    "block.order": replaced(SimpleBlock, "forward", lambda model, x: model.linear2(model.linear1(model.relu(x)))),
    "linear.weight": _of("weight", np.transpose),
    "conv2d.weight": _of("conv1.weight", lambda kernel: np.swapaxes(kernel, 2, 3)),
    "attention.packing": _of("in_proj_weight", _value_for_key),
    "dropout.generator": replaced(Masks, "drawn", _frameworks_own),
    "dropout.replicas": wrapped(Masks, "__init__", lambda make, masks, seed, replica: make(masks, seed, 0)),
    "dropout.step": replaced(Masks, "on_step", lambda masks: masks._calls.clear()),
    "dropout.rate": constant(nn.Dropout, "p", 0.2),
    "dropout.scale": replaced(masks, "dropout", lambda x, numbers, rate, key: x * keep(numbers, rate, key).to(x.dtype)),
    "dropout.attention": constant(nn.MultiheadAttention, "dropout", 0.0),
    "evaluation.mode": replaced(single, "evaluate", _in_training),
}
# In float32 runs only: the float64 runs are correct.
FAULTS_IN_FLOAT32: dict[str, Patches] = {
    "relu.dropped_in_float32": together(
        replaced(functional, "relu", lambda x, inplace=False: x), replaced(torch, "relu", lambda x: x)
    ),
    "matmul.bfloat16_in_float32": wrapped(functional, "linear", partial(_product_in, torch.bfloat16)),
    "matmul.float16_in_float32": wrapped(functional, "linear", partial(_product_in, torch.float16)),
    "matmul.tf32_in_float32": wrapped(
        functional, "linear", lambda linear, x, weight, bias=None: linear(_ten_bits(x), _ten_bits(weight), bias)
    ),
    "conv2d.float16_in_float32": wrapped(functional, "conv2d", partial(_outputs_in, torch.float16)),
    "batch_norm.float16_in_float32": wrapped(functional, "batch_norm", partial(_outputs_in, torch.float16)),
    "layer_norm.bfloat16_in_float32": wrapped(functional, "layer_norm", partial(_outputs_in, torch.bfloat16)),
    "layer_norm.epsilon_in_float32": constant(torch.nn.LayerNorm, "eps", 1e-3),
    "attention.float16_in_float32": _attention(partial(_outputs_in, torch.float16)),
    "precision.tf32": lambda: [_tf32(torch.backends.cuda.matmul), _tf32(torch.backends.cudnn)],
}
