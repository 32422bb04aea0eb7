"""Faults of layers."""

from collections.abc import Callable
from unittest import mock

import torch
from torch import nn
from torch.nn import functional

from torch_impl.faults.mutate import Patches, constant, replaced, unused

Forward = Callable[..., torch.Tensor]


# Batch norm.


def _running_statistics(forward: Forward) -> Forward:
    def changed(self: nn.BatchNorm2d, x: torch.Tensor) -> torch.Tensor:
        return functional.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps)

    return changed


def _frozen_statistics(forward: Forward) -> Forward:
    """Leave the buffers unchanged, as momentum=0 does."""

    def changed(self: nn.BatchNorm2d, x: torch.Tensor) -> torch.Tensor:
        with mock.patch.object(self, "momentum", 0.0):
            return forward(self, x)

    return changed


def _biased_variance(forward: Forward) -> Forward:
    def changed(self: nn.BatchNorm2d, x: torch.Tensor) -> torch.Tensor:
        previous = self.running_var.clone()
        outputs = forward(self, x)
        if self.training:
            new = self.running_var - (1 - self.momentum) * previous
            self.running_var.data -= new / (x.numel() / x.size(1))
        return outputs

    return changed


# Linear and convolutions.


def _transposed_product(forward: Forward) -> Forward:
    return lambda self, x: functional.linear(x, self.weight.T, self.bias)


def _no_bias(forward: Forward) -> Forward:
    return lambda self, x: functional.linear(x, self.weight) + unused(self.bias)


FAULTS: dict[str, Patches] = {
    "layer_norm.epsilon": constant(nn.LayerNorm, "eps", 1.001e-5),
    "layer_norm.small_epsilon": constant(nn.LayerNorm, "eps", 1e-6),
    "group_norm.epsilon": constant(nn.GroupNorm, "eps", 1e-3),
    "batch_norm.epsilon": constant(nn.BatchNorm2d, "eps", 1e-3),
    "batch_norm.momentum": constant(nn.BatchNorm2d, "momentum", 0.01),
    "batch_norm.running_variance": replaced(nn.BatchNorm2d, "forward", _biased_variance),
    "batch_norm.mode": replaced(nn.BatchNorm2d, "forward", _running_statistics),
    "batch_norm.frozen": replaced(nn.BatchNorm2d, "forward", _frozen_statistics),
    "linear.transposed": replaced(nn.Linear, "forward", _transposed_product),
    "linear.bias": replaced(nn.Linear, "forward", _no_bias),
    "conv2d.padding_mode": constant(nn.Conv2d, "padding_mode", "replicate"),
    "gelu.form": constant(nn.GELU, "approximate", "tanh"),
    "softmax.axis": constant(nn.Softmax, "dim", 0),
    "relu.dropped": replaced(nn.ReLU, "forward", lambda forward: lambda self, x: x),
    "relu.slope": replaced(nn.ReLU, "forward", lambda forward: lambda self, x: functional.leaky_relu(x, 0.01)),
    "relu.cap": replaced(nn.ReLU, "forward", lambda forward: lambda self, x: x.clamp(0, 1)),
    "embedding.padding_idx": constant(nn.Embedding, "padding_idx", 0),
    "embedding.frequency": constant(nn.Embedding, "scale_grad_by_freq", True),
}
