"""Faults of a model's numbers: other initial parameters, other masks of dropout, a lower precision."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from parity.core.arrays import Floats
from parity.core.patches import setting
from parity.selftest.mutate import Patches, constant, loaded, replaced, together, wrapped
from torch_impl.dropout import Key, keep
from torch_impl.record import masks, weights
from torch_impl.record.masks import Masks
from torch_impl.strategies import single

Function = Callable[..., torch.Tensor]


# Initial parameters.


def _of(ending: str, change: Callable[[Floats], Floats]) -> Patches:
    """Change the parameters whose names have this ending when they are loaded."""
    return loaded(
        weights, lambda name, values: np.ascontiguousarray(change(values)) if name.endswith(ending) else values
    )


def _value_for_key(packed: Floats) -> Floats:
    query, key, value = np.split(packed, 3)
    return np.concatenate([query, value, key])


# Dropout.


def _frameworks_own(masks: Masks, model: nn.Module) -> AbstractContextManager:
    torch.manual_seed(masks.seed)
    return nullcontext()


def _as_replica_0(make: Callable[..., None], masks: Masks, seed: int, replica: int | None) -> None:
    make(masks, seed, 0)


def _as_step_0(masks: Masks) -> None:
    masks._calls.clear()


def _unscaled(x: torch.Tensor, numbers: torch.Tensor, rate: float, key: Key) -> torch.Tensor:
    return x * keep(numbers, rate, key).to(x.dtype)


@torch.no_grad()
def _in_training(model: nn.Module, inputs: tuple[torch.Tensor, ...]) -> torch.Tensor:
    torch.manual_seed(0)
    return model(*inputs)


# Precision.


def _product_in(
    dtype: torch.dtype, linear: Function, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
) -> torch.Tensor:
    product = linear(x.to(dtype), weight.to(dtype)).to(x.dtype)
    return product if bias is None else product + bias


def _ten_bits(x: torch.Tensor) -> torch.Tensor:
    """Round x to 10 bits, as TF32 rounds the factors of a product.

    `rounded - x` is exact, because neighbouring floats subtract exactly; so the sum is the rounded value, with the
    gradient of x.
    """
    with torch.no_grad():
        rounded = ((x.contiguous().view(torch.int32) + (1 << 12)) & ~((1 << 13) - 1)).view(torch.float32)
    return x + (rounded - x).detach()


def _factors_of_ten_bits(
    linear: Function, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
) -> torch.Tensor:
    return linear(_ten_bits(x), _ten_bits(weight), bias)


def _outputs_in(dtype: torch.dtype, function: Function, x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    return function(x, *args, **kwargs).to(dtype).to(x.dtype)


def _tf32(backend: Any) -> AbstractContextManager[None]:
    """Return a context in which TF32 is allowed on GPUs, which rounds factors of products to 10 bits."""
    return setting(lambda: backend.allow_tf32, partial(setattr, backend, "allow_tf32"), True)


FAULTS: dict[str, Patches] = {
    "linear.weight": _of("weight", np.transpose),
    "conv2d.weight": _of("conv1.weight", lambda kernel: np.swapaxes(kernel, 2, 3)),
    "attention.packing": _of("in_proj_weight", _value_for_key),
    "dropout.generator": replaced(Masks, "drawn", _frameworks_own),
    "dropout.replicas": wrapped(Masks, "__init__", _as_replica_0),
    "dropout.step": replaced(Masks, "on_step", _as_step_0),
    "dropout.rate": constant(nn.Dropout, "p", 0.2),
    "dropout.scale": replaced(masks, "dropout", _unscaled),
    "dropout.attention": constant(nn.MultiheadAttention, "dropout", 0.0),
    "evaluation.mode": replaced(single, "evaluate", _in_training),
}
# In float32 runs only: the float64 runs are correct.
FAULTS_IN_FLOAT32: dict[str, Patches] = {
    "relu.dropped_in_float32": together(
        replaced(functional, "relu", lambda x, inplace=False: x),
        replaced(torch, "relu", lambda x: x),
    ),
    "matmul.bfloat16_in_float32": wrapped(functional, "linear", partial(_product_in, torch.bfloat16)),
    "matmul.float16_in_float32": wrapped(functional, "linear", partial(_product_in, torch.float16)),
    "matmul.tf32_in_float32": wrapped(functional, "linear", _factors_of_ten_bits),
    "conv2d.float16_in_float32": wrapped(functional, "conv2d", partial(_outputs_in, torch.float16)),
    "batch_norm.float16_in_float32": wrapped(functional, "batch_norm", partial(_outputs_in, torch.float16)),
    "layer_norm.bfloat16_in_float32": wrapped(functional, "layer_norm", partial(_outputs_in, torch.bfloat16)),
    "layer_norm.epsilon_in_float32": constant(torch.nn.LayerNorm, "eps", 1e-3),
    "attention.float16_in_float32": wrapped(
        functional, "scaled_dot_product_attention", partial(_outputs_in, torch.float16)
    ),
    "precision.tf32": lambda: [_tf32(torch.backends.cuda.matmul), _tf32(torch.backends.cudnn)],
}
