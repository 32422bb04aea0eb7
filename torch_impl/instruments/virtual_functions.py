"""Virtual devices for a block of code, and the functions that nn.DataParallel and torch.autocast call there instead.

PyTorch's own casts ignore the tensors of virtual devices. The functions and methods that torch.autocast casts are
therefore wrapped by name, where programs and torch.nn look them up. CASTS is the only table of them
(docs.pytorch.org/docs/stable/amp.html, "Autocast Op Reference"); the tests hold it to what PyTorch's own autocast does.
"""

import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch.nn import Module, functional
from torch.utils._pytree import tree_leaves, tree_map

from parity.core.patches import applied, wrapping
from torch_impl.instruments.virtual_devices import TYPE, Machine, VirtualDevices, VirtualTensor, set_data

# PyTorch 2.9 does not cast rms_norm yet; its dispatcher tells.
RMS_NORM = "rms_norm" if torch._C._dispatch_has_kernel_for_dispatch_key("aten::rms_norm", "AutocastCUDA") else ""
# The names, by the type to which they cast (that of torch.autocast, float32, or that of the widest argument) and the
# kinds of devices on which they do.
CASTS = {
    ("lower", ("cpu", "cuda")): """
        __matmul__ __rmatmul__ addbmm addmm baddbmm bmm conv1d conv2d conv3d conv_transpose1d conv_transpose2d
        conv_transpose3d linear matmul mm multi_dot prelu scaled_dot_product_attention
    """,
    ("lower", ("cuda",)): """
        addmv addr chain_matmul einsum gru gru_cell lstm lstm_cell mv rnn_relu rnn_relu_cell rnn_tanh rnn_tanh_cell
    """,
    ("float32", ("cpu", "cuda")): """
        binary_cross_entropy_with_logits cdist cosine_embedding_loss cross_entropy hinge_embedding_loss huber_loss
        kl_div l1_loss margin_ranking_loss mse_loss multi_margin_loss multilabel_margin_loss nll_loss
        poisson_nll_loss prod smooth_l1_loss soft_margin_loss triplet_margin_loss
    """,
    ("float32", ("cuda",)): f"""
        __pow__ __rpow__ __rtruediv__ acos asin cosh cosine_similarity cumprod cumsum dist erfinv exp expm1
        frobenius_norm group_norm layer_norm log log10 log1p log2 log_softmax logsumexp norm normalize nuclear_norm
        pdist pow reciprocal renorm rsqrt sinh softmax softmin softplus sum tan {RMS_NORM}
    """,
    ("widest", ("cpu", "cuda")): "cat stack",
    ("widest", ("cuda",)): "addcdiv addcmul atan2 bilinear cross dot grid_sample index_put scatter_add tensordot vdot",
}


def cast_patches(kind: str) -> Iterator[tuple[Any, str, Any]]:
    """Yield what is replaced (owner, name, value) for torch.autocast of a kind of device: "cpu" or "cuda"."""
    for owner in (torch, torch._VF, torch.linalg, functional, torch.Tensor):
        for (to, kinds), names in CASTS.items():
            for name in names.split() if kind in kinds else ():
                if hasattr(owner, name):
                    yield owner, name, wrapping(_cast, getattr(owner, name), to, kind)
    if kind == "cuda":
        yield functional, "binary_cross_entropy", wrapping(_refused, functional.binary_cross_entropy)


def _cast(function: Callable[..., Any], to: str, kind: str, /, *args: Any, **kwargs: Any) -> Any:
    """Call a function, whose arguments are cast while torch.autocast is on."""
    if torch.is_autocast_enabled(kind) and (tensors := _cast_ones((args, kwargs))):
        target = torch.get_autocast_dtype(kind) if to == "lower" else torch.float32
        if to == "widest":
            target = functools.reduce(torch.promote_types, (tensor.dtype for tensor in tensors))
        args, kwargs = tree_map(lambda value: value.to(target) if _is_cast(value) else value, (args, kwargs))
    return function(*args, **kwargs)


def _is_cast(value: Any) -> bool:
    return isinstance(value, VirtualTensor) and value.is_floating_point() and value.dtype != torch.float64


def _cast_ones(value: Any) -> list[torch.Tensor]:
    """Return the tensors that are cast, also those within lists."""
    return [leaf for leaf in tree_leaves(value) if _is_cast(leaf)]


def _refused(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Call a function that autocast refuses, with the error that it raises on CUDA."""
    if torch.is_autocast_enabled("cuda") and _cast_ones((args, kwargs)):
        raise RuntimeError(
            "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast.\n"
            "Many models use a sigmoid layer right before the binary cross entropy layer.\n"
            "In this case, combine the two layers using torch.nn.functional.binary_cross_entropy_with_logits\n"
            "or torch.nn.BCEWithLogitsLoss.  binary_cross_entropy_with_logits and BCEWithLogits are\n"
            "safe to autocast."
        )
    return function(*args, **kwargs)


@contextmanager
def virtual_devices(physical: torch.device | Machine) -> Iterator[None]:
    """Provide virtual devices `lazy:i`, as many as are used, within the block; nn.DataParallel runs on them.

    nn.DataParallel itself is unchanged. Replaced are the CUDA parts that it uses: the type of available devices, the
    copying functions in C++ (which a CPU build lacks), and the threads that give each replica a stream of its own.
    torch.autocast ignores virtual tensors, so its casts are made here: those of the device that computes, or those of
    the GPU that it is called.
    """
    machine = physical if isinstance(physical, Machine) else Machine(physical)
    module = sys.modules["torch.nn.parallel.data_parallel"]  # torch.nn.parallel's attribute is a function
    replaced = [
        mock.patch.object(torch.Tensor, "data", property(torch._C.TensorBase.data.__get__, set_data)),
        mock.patch.object(module, "_get_available_device_type", lambda: TYPE),
        mock.patch.object(module, "parallel_apply", _one_after_the_other),
        mock.patch.object(torch.cuda.nccl, "is_available", lambda tensors: False),
        mock.patch.object(torch._C, "_scatter", _scatter, create=True),
        mock.patch.object(torch._C, "_gather", _gather, create=True),
        mock.patch.object(torch._C, "_broadcast_coalesced", _broadcast, create=True),
    ]
    kind = machine.physical.type if machine.called == TYPE else machine.called
    replaced += [mock.patch.object(*patch) for patch in cast_patches(kind)]
    with applied(replaced), VirtualDevices(machine):
        yield


def _at(index: int) -> torch.device:
    return torch.device("cpu") if index == -1 else torch.device(TYPE, index)


def _scatter(
    tensor: torch.Tensor, devices: list[int], sizes: list[int] | None, dim: int, streams: Any
) -> list[torch.Tensor]:
    parts = tensor.chunk(len(devices), dim) if sizes is None else tensor.split(sizes, dim)
    return [part.to(_at(device)) for part, device in zip(parts, devices, strict=False)]


def _gather(tensors: Sequence[torch.Tensor], dim: int, destination: int) -> torch.Tensor:
    return torch.cat([tensor.to(_at(destination)) for tensor in tensors], dim)


def _broadcast(tensors: Sequence[torch.Tensor], devices: list[int], buffer_size: int) -> list[list[torch.Tensor]]:
    return [[tensor.detach().to(_at(device)) for tensor in tensors] for device in devices]


def _one_after_the_other(
    modules: Sequence[Module], inputs: Sequence[tuple], kwargs: Sequence[dict], devices: Sequence[int]
) -> list[Any]:
    return [module(*args, **named) for module, args, named in zip(modules, inputs, kwargs, strict=True)]
