"""The steps of chains in torch: functions, and how branches are combined. keras_steps.py has the same names.

Images are channels first here and channels last there. Functions whose name is in one file alone are another way to
write one that both have.
"""

import itertools
import math
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional


def places(x: Tensor) -> Tensor:
    """0, 1, 2... in the order of the elements."""
    return torch.arange(x.numel()).reshape(x.shape)


def floats(x: Tensor, values: Any) -> Tensor:
    return torch.as_tensor(values, dtype=x.dtype)


def every(x: Tensor, step: int, value: float) -> Tensor:
    """Every step-th element replaced; by the dtype's lowest number where value is "lowest"."""
    filled = torch.finfo(x.dtype).min if value == "lowest" else float(value)
    return torch.where(places(x) % step == 0, floats(x, filled), x)


def tie(x: Tensor, value: float) -> Tensor:
    """The first columns masked, by a comparison that falls out otherwise in float32: 0.1 x 3 is more than 0.3 above."""
    return torch.where(torch.arange(x.shape[-1]).to(x.dtype) * 0.1 > 0.3, x, floats(x, value))


def nudge(x: Tensor, place: int, by: float) -> Tensor:
    """One element moved, by its place in the whole tensor (negative: from its end)."""
    return x + by * (places(x) == place % x.numel()).to(x.dtype)


def row(x: Tensor, number: int, factor: float) -> Tensor:
    """One row of the batch scaled."""
    chosen = (torch.arange(x.shape[0]) == number % x.shape[0]).reshape(-1, *[1] * (x.dim() - 1))
    return torch.where(chosen, x * factor, x)


def column(x: Tensor, number: int, factor: float) -> Tensor:
    chosen = torch.arange(x.shape[-1]) == number % x.shape[-1]
    return torch.where(chosen, x * factor, x)


def append(x: Tensor, value: float) -> Tensor:
    """A constant column behind the others."""
    return torch.cat([x, floats(x, value).expand(*x.shape[:-1], 1)], -1)


class GradientFunction(torch.autograd.Function):
    """Leaves values alone; gradients are scaled, and noise is added that no seed makes."""

    @staticmethod
    def forward(context: Any, x: Tensor, factor: float, noise: float) -> Tensor:
        context.changes = factor, noise
        return x.clone()

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> Any:
        factor, noise = context.changes
        return gradient * factor + noise * unseeded(gradient), None, None


CALLS = itertools.count()  # of this process


def unseeded(x: Tensor) -> Tensor:
    source = np.random.default_rng(int.from_bytes(os.urandom(8)))
    return torch.from_numpy(source.standard_normal(tuple(x.shape))).to(x.dtype)


def causal(x: Tensor, diagonal: int = 0, value: float = -math.inf) -> Tensor:
    """Scores (batch, query, key) with the keys after the query masked."""
    filled = torch.finfo(x.dtype).min if value == "lowest" else float(value)
    seen = torch.ones(x.shape[-2:], dtype=torch.bool).tril(int(diagonal))
    return torch.where(seen, x, floats(x, filled))


def logistic(x: Tensor, times: int) -> Tensor:
    """The logistic map, chaotic at 3.99."""
    for _ in range(times):
        x = 3.99 * x * (1 - x)
    return x


def l2_normal(x: Tensor, eps: float) -> Tensor:
    return x / (x.square().sum(-1, keepdim=True).sqrt() + eps)


def standard(x: Tensor, eps: float) -> Tensor:
    """Each row less its mean, over its deviation."""
    return (x - x.mean(-1, keepdim=True)) / (x.var(-1, correction=0, keepdim=True) + eps).sqrt()


def straight_round(x: Tensor) -> Tensor:
    return x + (x.round() - x).detach()


FUNCTIONS: dict[str, Callable[..., Any]] = {
    # values
    "scale": lambda x, by: x * by,
    "add": lambda x, by: x + by,
    "power": lambda x, by: x**by,
    "every": every,
    "tie": tie,
    "nudge": nudge,
    "row": row,
    "column": column,
    "append": append,
    "clip": lambda x, low, high: x.clamp(low, high),
    "huge": lambda x, by: x * by,
    "cast16": lambda x: x.to(torch.bfloat16).to(x.dtype),
    "cast32": lambda x: x.to(torch.float32).to(x.dtype),
    # what no input decides
    "noise": lambda x, by: x + by * unseeded(x),
    "grad_noise": lambda x, by: GradientFunction.apply(x, 1.0, by),
    "grad_scale": lambda x, by: GradientFunction.apply(x, by, 0.0),
    "grad_signs": lambda x: GradientFunction.apply(x, float(np.sign(unseeded(torch.zeros(())))), 0.0),
    "grad_drift": lambda x, by: GradientFunction.apply(x, 1 + by * next(CALLS), 0.0),
    "drift": lambda x, by: x * (1 + by * next(CALLS)),
    "detach": lambda x: x.detach(),
    # activations
    "relu": functional.relu,
    "relu6": functional.relu6,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "silu": functional.silu,
    "gelu_exact": functional.gelu,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "elu": lambda x, alpha=1.0: functional.elu(x, alpha),
    "selu": functional.selu,
    "celu": lambda x, alpha=1.0: functional.celu(x, alpha),
    "softplus": lambda x, threshold=20: functional.softplus(x, threshold=threshold),
    "mish": functional.mish,
    "hardtanh": functional.hardtanh,
    "hard_sigmoid": functional.hardsigmoid,
    "hard_swish": functional.hardswish,
    "leaky": lambda x, slope=0.01: torch.where(x > 0, x, slope * x),
    "softsign": functional.softsign,
    "log_sigmoid": functional.logsigmoid,
    "softshrink": lambda x, by=0.5: functional.softshrink(x, by),
    "hardshrink": lambda x, by=0.5: functional.hardshrink(x, by),
    "tanhshrink": functional.tanhshrink,
    "threshold": lambda x, at, value: functional.threshold(x, at, value),
    "glu": lambda x: functional.glu(x, -1),
    "softmax": lambda x, axis=-1: x.softmax(axis),
    "log_softmax": lambda x, axis=-1: x.log_softmax(axis),
    "logsumexp": lambda x, axis=-1: x.logsumexp(axis),
    # kinks and whole numbers
    "abs": torch.abs,
    "floor": torch.floor,
    "round": torch.round,
    "half_up": lambda x: torch.floor(x + 0.5),
    "trunc": torch.trunc,
    "sign": torch.sign,
    "straight_round": straight_round,
    "sort": lambda x: x.sort(-1).values,
    "descending": lambda x: x.sort(-1, descending=True).values,
    "top": lambda x, k: x.topk(k, -1).values,
    "max": lambda x, axis=-1: x.max(axis).values,
    "amax": lambda x, axis=-1: x.amax(axis),
    "argmax": lambda x: x.argmax(-1),
    "argmin": lambda x: x.argmin(-1),
    "cumsum": lambda x, axis=-1: x.cumsum(axis),
    "cumprod": lambda x, axis=-1: x.cumprod(axis),
    "cummax": lambda x, axis=-1: x.cummax(axis).values,
    "modulo": lambda x, by: torch.remainder(x, by),
    "fmod": lambda x, by: torch.fmod(x, by),
    "median": lambda x: x.median(-1).values,
    # reductions and shapes
    "mean": lambda x, axis=-1: x.mean(axis),
    "sum": lambda x, axis=-1: x.sum(axis),
    "std": lambda x, correction=1: x.std(-1, correction=correction),
    "var": lambda x, correction=1: x.var(-1, correction=correction),
    "norm": lambda x: torch.linalg.norm(x, dim=-1),
    "l2_normal": l2_normal,
    "standard": standard,
    "centred": lambda x, axis=-1: x - x.mean(axis, keepdim=True),
    "unsqueeze": lambda x, axis: x.unsqueeze(axis),
    "swap": lambda x: x.transpose(-1, -2),
    "flatten": lambda x: x.flatten(1),
    "split_rows": lambda x, count: x.reshape(x.shape[0], count, -1),
    "roll": lambda x, by, axis=-1: x.roll(by, axis),
    "reverse": lambda x, axis=-1: x.flip(axis),
    "take": lambda x, number: x[:, number],
    "first": lambda x, count: x[..., :count],
    "last": lambda x, count: x[..., -count:],
    "tile": lambda x, count: x.tile(count),
    "repeat": lambda x, count: x.repeat_interleave(count, -1),
    "double": lambda x: torch.cat([x, x], -1),
    "one_hot": lambda x, count: functional.one_hot(x.long(), count).to(torch.get_default_dtype()),
    "to_float": lambda x: x.to(torch.get_default_dtype()),
    "to_int": lambda x: x.to(torch.int64),
    # transcendental
    "exp": torch.exp,
    "log": torch.log,
    "log1p": torch.log1p,
    "expm1": torch.expm1,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "square": torch.square,
    "reciprocal": torch.reciprocal,
    "sin": torch.sin,
    "cos": torch.cos,
    "erf": torch.erf,
    "atan": torch.atan,
    # attention
    "gram": lambda x: x @ x.transpose(-1, -2) / math.sqrt(x.shape[-1]),
    "causal": causal,
    "logistic": logistic,
    # images
    "max_pool": lambda x, k: functional.max_pool2d(x, k),
    "avg_pool": lambda x, k: functional.avg_pool2d(x, k),
    "mean_hw": lambda x: x.mean((2, 3)),
    "max_hw": lambda x: x.amax((2, 3)),
    "pad": lambda x, by, value=0.0: functional.pad(x, (by,) * 4, value=value),
    "pad_reflect": lambda x, by: functional.pad(x, (by,) * 4, mode="reflect"),
    "pad_replicate": lambda x, by: functional.pad(x, (by,) * 4, mode="replicate"),
    "nearest": lambda x, by: x.repeat_interleave(by, 2).repeat_interleave(by, 3),
    "transpose_hw": lambda x: x.transpose(2, 3),
    "flip_w": lambda x: x.flip(3),
    "flip_h": lambda x: x.flip(2),
    "crop_top": lambda x, by: x[:, :, by:, by:],
    "crop_bottom": lambda x, by: x[:, :, :-by, :-by],
    "every_other": lambda x, start=0: x[:, :, start::2, start::2],
    "flatten_chw": lambda x: x.flatten(1),
}
COMBINED: dict[str, Callable[[list[Tensor]], Any]] = {
    "plus": lambda parts: sum(parts[1:], parts[0]),
    "minus": lambda parts: parts[0] - parts[1],
    "mul": lambda parts: math.prod(parts[1:], start=parts[0]),
    "over": lambda parts: parts[0] / parts[1],
    "concat": lambda parts: torch.cat(parts, -1),
    "matmul": lambda parts: parts[0] @ parts[1],
    "maximum": lambda parts: torch.maximum(parts[0], parts[1]),
    "minimum": lambda parts: torch.minimum(parts[0], parts[1]),
    "where": lambda parts: torch.where(parts[0] > 0, parts[1], parts[2]),
    "outputs": tuple,
}
