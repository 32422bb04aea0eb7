"""What a script that trains in several processes finds: one rank, of one.

The variables that torchrun sets are told where a script cannot do without. Its process group holds this process alone,
and of the processes that it would start, the first one's function is called in their place.
"""

import inspect
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from parity.core.ownership import owner
from parity.core.patches import around

VARIABLES = {
    **dict.fromkeys(("RANK", "LOCAL_RANK", "GROUP_RANK"), "0"),
    **dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE"), "1"),
    "MASTER_ADDR": "localhost",
    "MASTER_PORT": "29500",
}
DEVICES = {"device_ids", "output_device"}
NUMBER = re.compile(r"(world|num|n)?_?(size|world|procs?|processes|gpus?|ranks|devices)(_per_node)?", re.IGNORECASE)


def patches() -> Iterator[AbstractContextManager[Any]]:
    """Yield what is patched while a script runs."""
    yield around(type(os.environ), "__getitem__", _variable)
    yield around(dist, "init_process_group", _join)
    yield around(dist, "destroy_process_group", lambda destroy, group=None: None if group is None else destroy(group))
    for name in ("spawn", "start_processes"):
        yield around(mp, name, _spawned)
    yield around(BaseProcess, "start", _started)
    yield around(BaseProcess, "join", _joined)
    if not torch.cuda.is_available():
        yield around(DistributedDataParallel, "__init__", _wrapped)


def _variable(get: Callable[[Any, str], str], environment: Any, name: str) -> str:
    """Return a variable; one of torchrun's that is not set, where its absence would end the script."""
    try:
        return get(environment, name)
    except KeyError:
        if name in VARIABLES and not _has_default(sys._getframe(2)):
            return VARIABLES[name]
        raise


def _has_default(asks: FrameType | None) -> bool:
    """Return whether a mapping's own method asks: `in`, or `get`."""
    return asks is not None and owner(asks.f_code.co_filename) == "standard"


def _join(init: Callable[..., None], *args: Any, **kwargs: Any) -> None:
    """Make the process group of this process alone; it is kept, as the script is run several times."""
    if not dist.is_initialized():
        init("gloo", store=dist.HashStore(), rank=0, world_size=1)


def _spawned(
    start: Callable[..., Any], function: Callable[..., Any], args: Sequence[Any] = (), nprocs: int = 1, **kwargs: Any
) -> None:
    """Call what several processes would run as the only one."""
    _call(function, (0, *args), {})


def _call(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Call a function, of whose arguments the number of processes, which is told by its name, is 1."""
    given = inspect.signature(function).bind(*args, **kwargs)
    numbers = {name: 1 for name, each in given.arguments.items() if type(each) is int and NUMBER.fullmatch(name)}
    given.arguments.update(numbers)
    function(*given.args, **given.kwargs)


def _started(start: Callable[..., None], process: Any) -> None:
    """Call, where a process of rank 0 starts, what it would run; start none of another rank."""
    if not _trains(process._target):
        start(process)
    elif 0 in [each for each in (*process._args, *process._kwargs.values()) if type(each) is int][:1]:
        _call(process._target, process._args, process._kwargs)


def _trains(function: Any) -> bool:
    """Return whether a process runs a function of the script's where a process group is made."""
    file = getattr(getattr(function, "__code__", None), "co_filename", "")
    return owner(file) == "user" and "init_process_group" in Path(file).read_text()


def _joined(join: Callable[..., None], process: Any, timeout: float | None = None) -> None:
    """Wait for a process, if it was started."""
    if process._popen:
        join(process, timeout)


def _wrapped(init: Callable[..., None], wrapper: nn.Module, module: nn.Module, *args: Any, **kwargs: Any) -> None:
    """Wrap a module that a script believes to be on a GPU of its rank's."""
    init(wrapper, module, *(None for _ in args[:2]), *args[2:], **kwargs | dict.fromkeys(DEVICES & kwargs.keys()))
