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

from torch_impl.instruments import virtual_functions
from torch_impl.instruments.pretended import pretend
from torch_impl.instruments.virtual_functions import CASTS, virtual_devices

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
# What takes none of them, is not reached by its name in Python, or needs a GPU if PyTorch is built with CUDA.
NOT_TRIED = """
    _convolution _cudnn_rnn _scaled_dot_product_flash_attention addmv binary_cross_entropy conv_tbc conv_transpose1d
    convolution cosine_similarity cross cudnn_convolution cudnn_convolution_transpose grid_sample grid_sampler gru
    gru_cell
    index_put lstm lstm_cell multilabel_margin_loss native_layer_norm rnn_relu rnn_tanh scaled_dot_product_attention
    scatter_add
"""


TRIED = [
    (arguments, dtypes)
    for dtypes in ((torch.float32, torch.float32), (LOWER, LOWER), (LOWER, torch.float32))
    for arguments in ARGUMENTS
]


def result(function: Callable[..., Any], number: int, move: Callable[[torch.Tensor], Any]) -> torch.dtype | None:
    """The type of what a function returns for one of TRIED; None if it does not take the arguments."""
    arguments, dtypes = TRIED[number]
    x, y = (torch.rand(4, 4).to(dtype) for dtype in dtypes)
    given = tree_map(
        lambda value: move(value) if isinstance(value, torch.Tensor) else value, arguments(x, y, torch.arange(4))
    )
    try:
        returned = function(*given)
    except Exception:  # whatever the function raises
        return None
    returned = returned[0] if isinstance(returned, (tuple, list)) else returned
    return getattr(returned, "dtype", None)


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
    names = {name for (_, kinds), names in CASTS.items() if kind in kinds for name in names.split()}
    if kind == "cuda":
        ops = [op for op in torch._C._dispatch_get_all_op_names() if op.startswith("aten::")]
        cast = [op for op in ops if torch._C._dispatch_has_kernel_for_dispatch_key(op, "AutocastCUDA")]
        names |= {op.removeprefix("aten::").partition(".")[0] for op in cast}
    owners = (torch.Tensor, torch, functional)  # of several the last
    return {name: owner for name in sorted(names) for owner in owners if hasattr(owner, name)}


def pytorchs(kind: str) -> dict[str, dict[int, torch.dtype]]:
    """What PyTorch's own autocast does with the arguments that a function takes."""
    move = (lambda tensor: OnCuda(tensor.to("meta"))) if kind == "cuda" else (lambda tensor: tensor)
    with autocast(kind):
        found = {
            name: {number: result(getattr(owner, name), number, move) for number in range(len(TRIED))}
            for name, owner in functions(kind).items()
        }
    return {name: {number: dtype for number, dtype in row.items() if dtype} for name, row in found.items()}


def compared(kind: str) -> tuple[set[str], set[str]]:
    """The functions with another type than PyTorch's on virtual devices, and those that were not tried."""
    expected, wrong, untried = pytorchs(kind), set(), set()
    device = "cuda" if kind == "cuda" else torch.device("lazy", 0)
    with pretend(1) if kind == "cuda" else virtual_devices(torch.device("cpu")), autocast(kind):
        for name, owner in functions(kind).items():
            function = getattr(owner, name)
            seen = {number: result(function, number, lambda tensor: tensor.to(device)) for number in expected[name]}
            wrong |= {name} if any(dtype not in (None, expected[name][at]) for at, dtype in seen.items()) else set()
            untried |= set() if any(seen.values()) else {name}
    return wrong, untried


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["cpu", pytest.param("cuda", marks=pytest.mark.slow)])
def test_the_table_casts_what_pytorch_casts(kind):
    wrong, untried = compared(kind)
    assert not wrong
    assert untried <= set(NOT_TRIED.split())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_table_without_casts_is_told(monkeypatch):
    monkeypatch.setattr(
        virtual_functions, "CASTS", {key: names for key, names in CASTS.items() if "linear" not in names}
    )
    assert {"linear", "matmul"} <= compared("cpu")[0]
