"""What torch.autocast casts, done for virtual devices, whose tensors PyTorch's own casts ignore.

The functions and methods that torch.autocast casts are wrapped by name, where programs and torch.nn look them up. CASTS
is the only table of them (docs.pytorch.org/docs/stable/amp.html, "Autocast Op Reference"); the tests hold it to what
PyTorch's own autocast does.
"""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn import functional

from torch_impl.instruments.virtual_devices import VirtualTensor

Dtype = Callable[[str, list[torch.Tensor]], torch.dtype]  # by the kind of device and the tensors that are cast


def _lower(kind: str, tensors: list[torch.Tensor]) -> torch.dtype:
    return torch.get_autocast_dtype(kind)


def _float32(kind: str, tensors: list[torch.Tensor]) -> torch.dtype:
    return torch.float32


def _widest(kind: str, tensors: list[torch.Tensor]) -> torch.dtype:
    return functools.reduce(torch.promote_types, (tensor.dtype for tensor in tensors))


# PyTorch 2.9 does not cast rms_norm yet; its dispatcher tells.
RMS_NORM = "rms_norm" if torch._C._dispatch_has_kernel_for_dispatch_key("aten::rms_norm", "AutocastCUDA") else ""
# To which type, on which kinds of devices, and the names.
CASTS: tuple[tuple[Dtype, tuple[str, ...], str], ...] = (
    (
        _lower,
        ("cpu", "cuda"),
        """
        __matmul__ __rmatmul__ addbmm addmm baddbmm bmm conv1d conv2d conv3d conv_transpose1d conv_transpose2d
        conv_transpose3d linear matmul mm multi_dot prelu scaled_dot_product_attention
        """,
    ),
    (
        _lower,
        ("cuda",),
        """
        addmv addr chain_matmul einsum gru gru_cell lstm lstm_cell mv rnn_relu rnn_relu_cell rnn_tanh rnn_tanh_cell
        """,
    ),
    (
        _float32,
        ("cpu", "cuda"),
        """
        binary_cross_entropy_with_logits cdist cosine_embedding_loss cross_entropy hinge_embedding_loss huber_loss
        kl_div l1_loss margin_ranking_loss mse_loss multi_margin_loss multilabel_margin_loss nll_loss
        poisson_nll_loss prod smooth_l1_loss soft_margin_loss triplet_margin_loss
        """,
    ),
    (
        _float32,
        ("cuda",),
        """
        __pow__ __rpow__ __rtruediv__ acos asin cosh cosine_similarity cumprod cumsum dist erfinv exp expm1
        frobenius_norm group_norm layer_norm log log10 log1p log2 log_softmax logsumexp norm normalize nuclear_norm
        pdist pow reciprocal renorm rsqrt sinh softmax softmin softplus sum tan
        """
        + RMS_NORM,
    ),
    (_widest, ("cpu", "cuda"), "cat stack"),
    (_widest, ("cuda",), "addcdiv addcmul atan2 bilinear cross dot grid_sample index_put scatter_add tensordot vdot"),
)


def patches(kind: str) -> Iterator[tuple[Any, str, Any]]:
    """Yield what is replaced (owner, name, value) for torch.autocast of a kind of device: "cpu" or "cuda"."""
    for owner in (torch, torch._VF, torch.linalg, functional, torch.Tensor):
        for dtype, kinds, names in CASTS:
            for name in names.split() if kind in kinds else ():
                if hasattr(owner, name):
                    yield owner, name, _cast(getattr(owner, name), functools.partial(dtype, kind), kind)
    if kind == "cuda":
        yield functional, "binary_cross_entropy", _refused(functional.binary_cross_entropy)


def _cast(
    function: Callable[..., Any], dtype: Callable[[list[torch.Tensor]], torch.dtype], kind: str
) -> Callable[..., Any]:
    """Wrap a function so that its arguments are cast while torch.autocast is on."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if torch.is_autocast_enabled(kind) and (tensors := list(_cast_ones((args, kwargs)))):
            args, kwargs = _to((args, kwargs), dtype(tensors))
        return function(*args, **kwargs)

    return call


def _is_cast(value: Any) -> bool:
    return isinstance(value, VirtualTensor) and value.is_floating_point() and value.dtype != torch.float64


def _cast_ones(value: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors that are cast, also those within lists."""
    if isinstance(value, (list, tuple, dict)):
        for member in value.values() if isinstance(value, dict) else value:
            yield from _cast_ones(member)
    elif _is_cast(value):
        yield value


def _to(value: Any, dtype: torch.dtype) -> Any:
    if isinstance(value, dict):
        return {name: _to(member, dtype) for name, member in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_to(member, dtype) for member in value)
    return value.to(dtype) if _is_cast(value) else value


def _refused(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function that autocast refuses, so that it raises the error that it raises on CUDA."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if torch.is_autocast_enabled("cuda") and any(True for _ in _cast_ones((args, kwargs))):
            raise RuntimeError(
                "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast.\n"
                "Many models use a sigmoid layer right before the binary cross entropy layer.\n"
                "In this case, combine the two layers using torch.nn.functional.binary_cross_entropy_with_logits\n"
                "or torch.nn.BCEWithLogitsLoss.  binary_cross_entropy_with_logits and BCEWithLogits are\n"
                "safe to autocast."
            )
        return function(*args, **kwargs)

    return call
