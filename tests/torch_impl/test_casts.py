"""The table of what torch.autocast casts says what PyTorch's own autocast does, on the CPU and for CUDA.

PyTorch's casts for CUDA are in every build, and apply to any tensor that says that it is on such a device: those here
compute on the meta device.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch.nn import functional
from torch.utils._pytree import tree_map

from torch_impl.doctor.pretend import pretend
from torch_impl.instruments import casts
from torch_impl.instruments.casts import CASTS
from torch_impl.instruments.virtual_replicas import virtual_devices

LOWER = torch.bfloat16


class OnCuda(torch.Tensor):
    """A tensor without values that PyTorch takes for one on cuda:0."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(
            cls, inner.size(), strides=inner.stride(), dtype=inner.dtype, device="cuda:0"
        )

    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        def unwrapped(value):
            if isinstance(value, torch.device):
                return torch.device("meta")
            return value.inner if isinstance(value, OnCuda) else value

        results = func(*tree_map(unwrapped, args), **tree_map(unwrapped, kwargs or {}))
        return tree_map(lambda value: OnCuda(value) if isinstance(value, torch.Tensor) else value, results)


# Arguments to try until a function takes them, of floats x and y [4, 4] and integers ids [4].
ARGUMENTS: list[Callable[[Any, Any, Any], tuple]] = [
    lambda x, y, ids: (x, y),
    lambda x, y, ids: (x,),
    lambda x, y, ids: (x, y, x),
    lambda x, y, ids: ([x, y],),
    lambda x, y, ids: (x, 0),
    lambda x, y, ids: (x, ids),
    lambda x, y, ids: (x, y, ids),
    lambda x, y, ids: (x, [4]),
    lambda x, y, ids: (x, 2),
    lambda x, y, ids: (x, 2.0, 0, 1.0),
    lambda x, y, ids: (x[0], y[0]),
    lambda x, y, ids: (x, y[0]),
    lambda x, y, ids: (x, x[0], y[0]),
    lambda x, y, ids: (x, y, x, x),
    lambda x, y, ids: (x[None], y[None]),
    lambda x, y, ids: (x[None], x[None], y[None]),
    lambda x, y, ids: (x, x[None], y[None]),
    lambda x, y, ids: (x[None, None], y[None, None]),
    lambda x, y, ids: (x[None, None, None], y[None, None, None]),
    lambda x, y, ids: ("ij,jk->ik", x, y),
]
# What takes none of them, or is not reached by its name in Python.
NOT_TRIED = """
    _convolution _scaled_dot_product_flash_attention addmv binary_cross_entropy conv_tbc conv_transpose1d convolution
    cosine_similarity cross cudnn_convolution cudnn_convolution_transpose grid_sample grid_sampler gru gru_cell
    index_put lstm lstm_cell multilabel_margin_loss native_layer_norm rnn_relu rnn_tanh scatter_add
"""


def dtypes(function: Callable[..., Any], move: Callable[[torch.Tensor], Any]) -> list[torch.dtype | None]:
    """The type of the result for each of ARGUMENTS, in float32, bfloat16 and both; None if they do not fit."""

    def moved(value: Any) -> Any:
        return move(value) if isinstance(value, torch.Tensor) else value

    results = []
    for first, second in ((torch.float32, torch.float32), (LOWER, LOWER), (LOWER, torch.float32)):
        floats = [torch.rand(4, 4).to(dtype) for dtype in (first, second)]
        for arguments in ARGUMENTS:
            try:
                result = function(*tree_map(moved, arguments(*floats, torch.arange(4))))
            except Exception:  # whatever a function raises that does not take them
                result = None
            result = result[0] if isinstance(result, (tuple, list)) else result
            results.append(getattr(result, "dtype", None))
    return results


@contextmanager
def autocast(kind: str) -> Iterator[None]:
    """Autocast, also to CUDA's types where there is no GPU; torch.autocast would then turn itself off."""
    before = torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)
    torch.set_autocast_enabled(kind, True)
    torch.set_autocast_dtype(kind, LOWER)
    try:
        yield
    finally:
        torch.set_autocast_enabled(kind, before[0])
        torch.set_autocast_dtype(kind, before[1])


def functions(kind: str) -> dict[str, Any]:
    """What has the functions of the table, and for CUDA any other for which PyTorch has a cast, by name."""
    names = {name for _, kinds, names in CASTS if kind in kinds for name in names.split()}
    if kind == "cuda":
        ops = [op for op in torch._C._dispatch_get_all_op_names() if op.startswith("aten::")]
        cast = [op for op in ops if torch._C._dispatch_has_kernel_for_dispatch_key(op, "AutocastCUDA")]
        names |= {op.removeprefix("aten::").partition(".")[0] for op in cast}
    owners = (torch.Tensor, torch, functional)  # of several the last
    return {name: owner for name in sorted(names) for owner in owners if hasattr(owner, name)}


def pytorchs(kind: str) -> dict[str, list[torch.dtype | None]]:
    """What PyTorch's own autocast does."""
    with autocast(kind):
        if kind == "cuda":
            return {
                name: dtypes(getattr(owner, name), lambda tensor: OnCuda(tensor.to("meta")))
                for name, owner in functions(kind).items()
            }
        return {name: dtypes(getattr(owner, name), lambda x: x) for name, owner in functions(kind).items()}


def ours(kind: str) -> dict[str, list[torch.dtype | None]]:
    """What is done on virtual devices."""
    device = "cuda" if kind == "cuda" else torch.device("lazy", 0)
    with pretend(1) if kind == "cuda" else virtual_devices(torch.device("cpu")), autocast(kind):
        return {
            name: dtypes(getattr(owner, name), lambda tensor: tensor.to(device))
            for name, owner in functions(kind).items()
        }


def compared(kind: str) -> tuple[set[str], set[str]]:
    """The functions with another type than PyTorch's somewhere, and those that were not tried."""
    wrong, untried = set(), set()
    virtual = ours(kind)
    for name, expected in pytorchs(kind).items():
        pairs = [pair for pair in zip(expected, virtual[name], strict=True) if None not in pair]
        wrong |= {name} if any(one != other for one, other in pairs) else set()
        untried |= set() if pairs else {name}
    return wrong, untried


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_the_table_casts_what_pytorch_casts(kind):
    wrong, untried = compared(kind)
    assert not wrong
    assert untried <= set(NOT_TRIED.split())


@pytest.mark.filterwarnings("ignore")
def test_a_table_without_casts_is_told(monkeypatch):
    monkeypatch.setattr(casts, "CASTS", [row for row in CASTS if "linear" not in row[2]])
    assert {"linear", "matmul"} <= compared("cpu")[0]
