"""Faults between layers that are correct by themselves."""

from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from torch_impl.faults.mutate import Patches, constant, replaced, together, unused
from torch_impl.models.residual_block import ResidualBlock
from torch_impl.models.simple_block import SimpleBlock

Forward = Callable[..., torch.Tensor]


def _skipped_final_norm(forward: Forward) -> Forward:
    def changed(self: nn.TransformerEncoder | nn.TransformerDecoder, *args: Any, **kwargs: Any) -> torch.Tensor:
        with mock.patch.object(self.norm, "forward", lambda x: x + unused(self.norm.weight, self.norm.bias)):
            return forward(self, *args, **kwargs)

    return changed


def _with_positions(forward: Forward) -> Forward:
    """Let each layer add sinusoids (Vaswani et al. 2017, section 3.5) to its input."""
    return lambda self, x, *args, **kwargs: forward(self, x + _sinusoids(x), *args, **kwargs)


def _sinusoids(x: torch.Tensor) -> torch.Tensor:
    length, _, width = x.shape
    angles = np.arange(length)[:, None] / 1e4 ** (np.arange(0, width, 2) / width)
    return torch.tensor(np.concatenate([np.sin(angles), np.cos(angles)], axis=1), dtype=x.dtype)[:, None]


def _no_shortcut_around_attention(forward: Forward) -> Forward:
    def changed(self: nn.TransformerEncoderLayer, x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        x = self.norm1(self._sa_block(x, None, None))
        return self.norm2(x + self._ff_block(x))

    return changed


def _no_shortcut(forward: Forward) -> Forward:
    def changed(self: ResidualBlock, x: torch.Tensor) -> torch.Tensor:
        main = self.relu(self.bn1(self.conv1(x)))
        main = self.bn2(self.conv2(main))
        return self.relu(main + 0 * self.shortcut(x))

    return changed


def _relu_first(forward: Forward) -> Forward:
    return lambda self, x: self.linear2(self.linear1(self.relu(x)))


FAULTS: dict[str, Patches] = {
    "transformer.final_norm": together(
        replaced(nn.TransformerEncoder, "forward", _skipped_final_norm),
        replaced(nn.TransformerDecoder, "forward", _skipped_final_norm),
    ),
    "transformer.norm_order": constant(nn.Transformer, "norm_first", True),
    "transformer.activation": constant(nn.Transformer, "activation", functional.gelu),
    "transformer.position": replaced(nn.TransformerEncoderLayer, "forward", _with_positions),
    "transformer.shortcut": replaced(nn.TransformerEncoderLayer, "forward", _no_shortcut_around_attention),
    "residual.shortcut": replaced(ResidualBlock, "forward", _no_shortcut),
    "block.order": replaced(SimpleBlock, "forward", _relu_first),
}
