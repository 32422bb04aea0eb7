"""Faults of precision, in float32 runs only: the float64 runs are correct."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch.nn import functional

from torch_impl.faults.mutate import Patches, constant, replaced, together

Function = Callable[..., torch.Tensor]


def _product_in(dtype: torch.dtype) -> Callable[[Function], Function]:
    def change(linear: Function) -> Function:
        def changed(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
            product = linear(x.to(dtype), weight.to(dtype)).to(x.dtype)
            return product if bias is None else product + bias

        return changed

    return change


def _ten_bits(x: torch.Tensor) -> torch.Tensor:
    """Round x to 10 bits, as TF32 rounds the factors of a product.

    `rounded - x` is exact, because neighbouring floats subtract exactly; so the sum is the rounded value, with the
    gradient of x.
    """
    with torch.no_grad():
        rounded = ((x.contiguous().view(torch.int32) + (1 << 12)) & ~((1 << 13) - 1)).view(torch.float32)
    return x + (rounded - x).detach()


def _factors_of_ten_bits(linear: Function) -> Function:
    return lambda x, weight, bias=None: linear(_ten_bits(x), _ten_bits(weight), bias)


def _outputs_in(dtype: torch.dtype) -> Callable[[Function], Function]:
    return lambda function: lambda x, *args, **kwargs: function(x, *args, **kwargs).to(dtype).to(x.dtype)


@contextmanager
def _tf32() -> Iterator[None]:
    """Allow TF32 on GPUs within the block, which rounds factors of products to 10 bits."""
    backends = torch.backends.cuda.matmul, torch.backends.cudnn
    for backend in backends:
        backend.allow_tf32 = True
    try:
        yield
    finally:
        for backend in backends:
            backend.allow_tf32 = False


FAULTS: dict[str, Patches] = {
    "relu.dropped_in_float32": together(
        replaced(functional, "relu", lambda relu: lambda x, inplace=False: x),
        replaced(torch, "relu", lambda relu: lambda x: x),
    ),
    "matmul.bfloat16_in_float32": replaced(functional, "linear", _product_in(torch.bfloat16)),
    "matmul.float16_in_float32": replaced(functional, "linear", _product_in(torch.float16)),
    "matmul.tf32_in_float32": replaced(functional, "linear", _factors_of_ten_bits),
    "conv2d.float16_in_float32": replaced(functional, "conv2d", _outputs_in(torch.float16)),
    "batch_norm.float16_in_float32": replaced(functional, "batch_norm", _outputs_in(torch.float16)),
    "layer_norm.bfloat16_in_float32": replaced(functional, "layer_norm", _outputs_in(torch.bfloat16)),
    "layer_norm.epsilon_in_float32": constant(torch.nn.LayerNorm, "eps", 1e-3),
    "attention.float16_in_float32": replaced(functional, "scaled_dot_product_attention", _outputs_in(torch.float16)),
    "precision.tf32": lambda: [_tf32()],
}
