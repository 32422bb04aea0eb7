"""What nn.SyncBatchNorm computes with, which PyTorch has for CUDA only: in ops that every device has."""

from collections.abc import Iterator
from typing import Any

import torch

Tensor = torch.Tensor


def patches() -> Iterator[tuple[Any, str, Any]]:
    """What is replaced: owner, name, value."""
    yield torch, "batch_norm_stats", stats
    yield torch, "batch_norm_gather_stats_with_counts", gathered
    yield torch, "batch_norm_elemt", normalized
    yield torch, "batch_norm_backward_reduce", reduced
    yield torch, "batch_norm_backward_elemt", gradient


def stats(x: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Mean and 1 / standard deviation of each channel."""
    variance, mean = torch.var_mean(x.float(), _axes(x), correction=0)
    return mean, (variance + eps).rsqrt()


def gathered(
    x: Tensor, means: Tensor, inverses: Tensor, running_mean: Tensor, running_var: Tensor, *rest: Any
) -> tuple[Tensor, Tensor]:
    """The same of all ranks together, of what each rank has; the running ones are updated."""
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
    """The layer's output."""
    y = (x - _wide(mean, x)) * _wide(inverse, x)
    return (y if weight is None else y * _wide(weight, x) + _wide(bias, x)).to(x.dtype)


def reduced(
    grad: Tensor, x: Tensor, mean: Tensor, inverse: Tensor, weight: Tensor, *needed: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Sums over this rank's samples: of the gradient, of it times x - mean; the gradients of weight and bias."""
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
    """The gradient of the input, of the sums of all ranks."""
    total = counts.sum()
    scale = inverse if weight is None else inverse * weight
    way = (x - _wide(mean, x)) * _wide(inverse**2 * by_scale / total, x)
    return ((grad - _wide(by_bias / total, x) - way) * _wide(scale, x)).to(x.dtype)


def _axes(x: Tensor) -> list[int]:
    """All axes but that of the channels."""
    return [axis for axis in range(x.dim()) if axis != 1]


def _wide(values: Tensor, x: Tensor) -> Tensor:
    """One value of each channel, to go with x."""
    return values.view(1, -1, *[1] * (x.dim() - 2))
