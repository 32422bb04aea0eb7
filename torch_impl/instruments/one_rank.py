"""What a script that trains in several processes finds: one rank, of one.

The variables that torchrun sets are told where a script cannot do without. Its process group holds this process alone,
and of the processes that it would start, the first one's function is called in their place. One that needs a GPU finds
the CPU by that name.
"""

import functools
import inspect
import multiprocessing
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from parity.core.ownership import owner
from parity.core.patches import Original, around
from torch_impl.instruments.pretended import on_cpu

VARIABLES = {
    **dict.fromkeys(("RANK", "LOCAL_RANK", "GROUP_RANK"), "0"),
    **dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE"), "1"),
    "MASTER_ADDR": "localhost",
    "MASTER_PORT": "29500",
}
THREADS = ((torch, "set_num_threads"), (torch, "set_num_interop_threads"))
DEVICES = {"device_ids", "output_device"}
GPU = re.compile("cuda|gpu|nvidia|nccl", re.IGNORECASE)
NUMBER = re.compile(r"(world|num|n)?_?(size|world|procs?|processes|gpus?|ranks|devices)(_per_node)?", re.IGNORECASE)
_on_gpu: set[Path] = set()  # the scripts that have asked for one where there is none


def patches(file: Path, on_group: Callable[[], None]) -> Iterator[AbstractContextManager[Any]]:
    """Yield what is patched while a script runs, whose file this is; `on_group` is called when it makes its group."""

    def join(init: Original, *args: Any, **kwargs: Any) -> None:
        on_group()
        if not dist.is_initialized():  # it is kept, as the script is run several times
            init("gloo", store=dist.HashStore(), rank=0, world_size=1)

    if file in _on_gpu:
        yield on_cpu(1)
    yield around(type(os.environ), "__getitem__", _variable)
    yield around(dist, "init_process_group", join)
    yield around(dist, "destroy_process_group", lambda destroy, group=None: None if group is None else destroy(group))
    for name in ("spawn", "start_processes"):  # what several processes would run is called as the only one
        yield around(mp, name, lambda _, function, args=(), *__, **___: _call(function, (0, *args), {}))
    # What can be set once in a process has been set.
    for owner_of, name in ((mp, "set_start_method"), (multiprocessing, "set_start_method"), *THREADS):
        yield around(owner_of, name, lambda *_, **__: None)
    yield around(BaseProcess, "start", _started)
    yield around(BaseProcess, "join", _joined)
    if not torch.cuda.is_available():
        yield around(DistributedDataParallel, "__init__", _wrapped)
    if any(b"fsdp" in each.read_bytes() for each in file.parent.glob("*.py")):
        import torch.distributed.fsdp as fsdp  # takes half a second to import

        yield mock.patch.object(fsdp, "fully_shard", _Whole(fsdp.FSDPModule))
        yield mock.patch.object(fsdp, "FullyShardedDataParallel", FullyShardedDataParallel)


def asks_for_gpu(file: Path, failure: Exception | None) -> bool:
    """Return whether a script that has failed, or has not trained, needs a GPU where there is none.

    From then on it finds a device "cuda:0", which is the CPU.
    """
    if torch.cuda.is_available() or file in _on_gpu or not GPU.search(str(failure) if failure else file.read_text()):
        return False
    _on_gpu.add(file)
    return True


def hold_to(file: Path, model: nn.Module) -> None:
    """Let a model of a script's find the GPU that the script finds, also where it is called outside of its run."""
    forward = model.forward

    @functools.wraps(forward)
    def called(*args: Any, **kwargs: Any) -> Any:
        with on_cpu(1):
            return forward(*args, **kwargs)

    if file in _on_gpu:
        model.forward = called


def _variable(get: Callable[[Any, str], str], environment: Any, name: str) -> str:
    """Return a variable; one of torchrun's that is not set, where its absence would end the script."""
    try:
        return get(environment, name)
    except KeyError:
        asks = sys._getframe(2).f_code.co_filename  # of a mapping's own method, `in` or `get`, which has a default
        if name in VARIABLES and owner(asks) != "standard":
            return VARIABLES[name]
        raise


def _call(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Call a function, of whose arguments the number of processes, which is told by its name, is 1."""
    given = inspect.signature(function).bind(*args, **kwargs)
    numbers = {name: 1 for name, each in given.arguments.items() if type(each) is int and NUMBER.fullmatch(name)}
    given.arguments.update(numbers)
    function(*given.args, **given.kwargs)


def _started(start: Original, process: Any) -> None:
    """Call, where a process of rank 0 starts, what it would run; start none of another rank."""
    file = getattr(getattr(process._target, "__code__", None), "co_filename", "")
    if owner(file) != "user" or "init_process_group" not in Path(file).read_text():
        start(process)  # which runs no function of the script's where a process group is made
    elif 0 in [each for each in (*process._args, *process._kwargs.values()) if type(each) is int][:1]:
        _call(process._target, process._args, process._kwargs)


def _joined(join: Original, process: Any, timeout: float | None = None) -> None:
    """Wait for a process, if it was started."""
    if process._popen:
        join(process, timeout)


def _wrapped(init: Original, wrapper: nn.Module, module: nn.Module, *args: Any, **kwargs: Any) -> None:
    """Wrap a module that a script believes to be on a GPU of its rank's."""
    init(wrapper, module, *(None for _ in args[:2]), *args[2:], **kwargs | dict.fromkeys(DEVICES & kwargs.keys()))


class _Whole:
    """Stands in for `fully_shard`: over one rank a module is whole, with the methods of a class, FSDP2's."""

    def __init__(self, methods: type) -> None:
        names = (name for name in vars(methods) if not name.startswith("_"))
        self._none = dict.fromkeys(names, lambda *_, **__: None)  # as there is no other rank

    def __call__(self, module: Any, *args: Any, **kwargs: Any) -> Any:
        for each in module if isinstance(module, list) else [module]:
            each.__class__ = type(f"FSDP{type(each).__name__}", (type(each),), self._none)
        return module


class FullyShardedDataParallel(nn.Module):
    """Stands in for FSDP's first form, by its name: it holds a module, and calls it."""

    def __init__(self, module: nn.Module, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        self.module = module

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0) -> torch.Tensor:
        """Clip the gradients of all parameters by their norm."""
        return nn.utils.clip_grad_norm_(self.parameters(), max_norm, norm_type)

    def no_sync(self) -> AbstractContextManager[None]:
        """Return a context in which gradients are not exchanged, as they never are."""
        return nullcontext()
