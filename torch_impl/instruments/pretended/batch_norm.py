"""The functions behind nn.SyncBatchNorm, which PyTorch has for CUDA only, written in ops that every device has."""

from collections.abc import Iterator
from typing import Any

import torch

Tensor = torch.Tensor


def patches() -> Iterator[tuple[Any, str, Any]]:
    """Yield what is replaced: owner, name, value."""
    yield torch, "batch_norm_stats", stats
    yield torch, "batch_norm_gather_stats_with_counts", gathered
    yield torch, "batch_norm_elemt", normalized
    yield torch, "batch_norm_backward_reduce", reduced
    yield torch, "batch_norm_backward_elemt", gradient


def stats(x: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Return each channel's mean and 1 / standard deviation."""
    variance, mean = torch.var_mean(x.float(), _axes(x), correction=0)
    return mean, (variance + eps).rsqrt()


def gathered(
    x: Tensor, means: Tensor, inverses: Tensor, running_mean: Tensor, running_var: Tensor, *rest: Any
) -> tuple[Tensor, Tensor]:
    """Return mean and 1 / standard deviation over all ranks, from those of each rank.

    Updates the running statistics.
    """
    momentum, eps, counts = rest
    share = (counts / counts.sum())[:, None]
    mean = (means * share).sum(0)
    variance = ((inverses**-2 - eps + (means - mean) ** 2) * share).sum(0)
    if running_mean is not None:
        total = counts.sum()
        running_mean.lerp_(mean.to(running_mean.dtype), momentum)
        running_var.lerp_((variance * total / (total - 1)).to(running_var.dtype), momentum)
    return mean, (variance + eps).rsqrt()


def normalized(x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, inverse: Tensor, eps: float) -> Tensor:
    """Return the layer's output."""
    y = (x - _wide(mean, x)) * _wide(inverse, x)
    return (y if weight is None else y * _wide(weight, x) + _wide(bias, x)).to(x.dtype)


def reduced(
    grad: Tensor, x: Tensor, mean: Tensor, inverse: Tensor, weight: Tensor, *needed: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return sums over this rank's samples, by channel.

    They are the sum of the gradient, the sum of the gradient times x - mean, and the gradients of weight and bias.
    """
    by_bias = grad.float().sum(_axes(x))
    by_scale = (grad * (x - _wide(mean, x))).float().sum(_axes(x))
    return by_bias, by_scale, by_scale * inverse, by_bias


def gradient(
    grad: Tensor,
    x: Tensor,
    mean: Tensor,
    inverse: Tensor,
    weight: Tensor | None,
    by_bias: Tensor,
    by_scale: Tensor,
    counts: Tensor,
) -> Tensor:
    """Return the gradient of the input, from the sums over all ranks."""
    total = counts.sum()
    scale = inverse if weight is None else inverse * weight
    variance_term = (x - _wide(mean, x)) * _wide(inverse**2 * by_scale / total, x)
    return ((grad - _wide(by_bias / total, x) - variance_term) * _wide(scale, x)).to(x.dtype)


def _axes(x: Tensor) -> list[int]:
    """Return all axes but that of the channels."""
    return [axis for axis in range(x.dim()) if axis != 1]


def _wide(values: Tensor, x: Tensor) -> Tensor:
    """Reshape one value per channel so that it broadcasts with x."""
    return values.view(1, -1, *[1] * (x.dim() - 2))
