"""Faults of a model's layers, of attention, and of models whose layers are correct by themselves."""

import math
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from parity.selftest.mutate import Patches, constant, replaced, together, wrapped
from torch_impl.models.residual_block import ResidualBlock
from torch_impl.models.simple_block import SimpleBlock
from torch_impl.models.transformer import Transformer

Function = Callable[..., torch.Tensor]


def unused(*parameters: nn.Parameter) -> torch.Tensor:
    """Return zero, so that parameters that a fault leaves out still have a gradient: zeros."""
    return sum(parameter.sum() for parameter in parameters) * 0


# Batch norm.


def _running_statistics(norm: nn.BatchNorm2d, x: torch.Tensor) -> torch.Tensor:
    return functional.batch_norm(x, norm.running_mean, norm.running_var, norm.weight, norm.bias, eps=norm.eps)


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


# Linear and convolutions.


def _transposed_product(linear: nn.Linear, x: torch.Tensor) -> torch.Tensor:
    return functional.linear(x, linear.weight.T, linear.bias)


def _no_bias(linear: nn.Linear, x: torch.Tensor) -> torch.Tensor:
    return functional.linear(x, linear.weight) + unused(linear.bias)


# Attention.


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


# Models of layers that are correct by themselves.


def _skipped_final_norm(
    forward: Function, model: nn.TransformerEncoder | nn.TransformerDecoder, *args: Any, **kwargs: Any
) -> torch.Tensor:
    with mock.patch.object(model.norm, "forward", lambda x: x + unused(model.norm.weight, model.norm.bias)):
        return forward(model, *args, **kwargs)


def _with_positions(forward: Function, layer: nn.Module, x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    """Let each layer add sinusoids (Vaswani et al. 2017, section 3.5) to its input."""
    return forward(layer, x + _sinusoids(x), *args, **kwargs)


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


def _relu_first(model: SimpleBlock, x: torch.Tensor) -> torch.Tensor:
    return model.linear2(model.linear1(model.relu(x)))


FAULTS: dict[str, Patches] = {
    "layer_norm.epsilon": constant(nn.LayerNorm, "eps", 1.001e-5),
    "layer_norm.small_epsilon": constant(nn.LayerNorm, "eps", 1e-6),
    "group_norm.epsilon": constant(nn.GroupNorm, "eps", 1e-3),
    "batch_norm.epsilon": constant(nn.BatchNorm2d, "eps", 1e-3),
    "batch_norm.momentum": constant(nn.BatchNorm2d, "momentum", 0.01),
    "batch_norm.running_variance": wrapped(nn.BatchNorm2d, "forward", _biased_variance),
    "batch_norm.mode": replaced(nn.BatchNorm2d, "forward", _running_statistics),
    "batch_norm.frozen": wrapped(nn.BatchNorm2d, "forward", _frozen_statistics),
    "linear.transposed": replaced(nn.Linear, "forward", _transposed_product),
    "linear.bias": replaced(nn.Linear, "forward", _no_bias),
    "conv2d.padding_mode": constant(nn.Conv2d, "padding_mode", "replicate"),
    "gelu.form": constant(nn.GELU, "approximate", "tanh"),
    "softmax.axis": constant(nn.Softmax, "dim", 0),
    "relu.dropped": replaced(nn.ReLU, "forward", lambda relu, x: x),
    "relu.slope": replaced(nn.ReLU, "forward", lambda relu, x: functional.leaky_relu(x, 0.01)),
    "relu.cap": replaced(nn.ReLU, "forward", lambda relu, x: x.clamp(0, 1)),
    "embedding.padding_idx": constant(nn.Embedding, "padding_idx", 0),
    "embedding.frequency": constant(nn.Embedding, "scale_grad_by_freq", True),
    "attention.key_dim": wrapped(functional, "scaled_dot_product_attention", _key_dim_of_all_heads),
    "attention.batch_first": constant(nn.Transformer, "batch_first", True),
    "attention.mask": constant(Transformer, "causal", False),
    "attention.mask_offset": wrapped(functional, "scaled_dot_product_attention", _one_word_ahead),
    "transformer.final_norm": together(
        wrapped(nn.TransformerEncoder, "forward", _skipped_final_norm),
        wrapped(nn.TransformerDecoder, "forward", _skipped_final_norm),
    ),
    "transformer.norm_order": constant(nn.Transformer, "norm_first", True),
    "transformer.activation": constant(nn.Transformer, "activation", functional.gelu),
    "transformer.position": wrapped(nn.TransformerEncoderLayer, "forward", _with_positions),
    "transformer.shortcut": replaced(nn.TransformerEncoderLayer, "forward", _no_shortcut_around_attention),
    "residual.shortcut": replaced(ResidualBlock, "forward", _no_shortcut),
    "block.order": replaced(SimpleBlock, "forward", _relu_first),
}
