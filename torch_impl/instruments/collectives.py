"""Records calls that wait for other ranks, before they are made.

If a rank hangs, the file says in which call.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from parity.doctor.evidence.ranks import Collective
from parity.doctor.files import Files
from torch_impl.instruments import source

PEERS = ("send", "recv")
# The names under which the program calls them.
NAMES = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "_allgather_base": "all_gather_into_tensor",
    "_reduce_scatter_base": "reduce_scatter_tensor",
    "alltoall": "all_to_all",
    "alltoall_base": "all_to_all_single",
    "recv_any_source": "recv",
}


class Collectives(TorchDispatchMode):
    """The mode that records every call of torch.distributed within it."""

    def __init__(self, files: Files):
        super().__init__()
        self.files = files

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if func.namespace in ("c10d", "_c10d_functional") and (collective := _described(func, args)):
            self.files.note(collective)
        return func(*args, **(kwargs or {}))


def _described(func: Any, args: tuple) -> Collective | None:
    """Describe the call; None for one that does not wait itself."""
    name = func.overloadpacket.__name__.rstrip("_")
    tensors = [leaf for leaf in tree_leaves(args) if isinstance(leaf, torch.Tensor)]
    if name in ("wait_tensor", "_wrap_tensor_autograd") or not tensors:
        return None
    group = next(
        (dist.ProcessGroup.unbox(argument) for argument in args if isinstance(argument, torch.ScriptObject)), None
    )
    return Collective(
        operation=NAMES.get(name, name),
        shape=list(tensors[0].shape),
        dtype=str(tensors[0].dtype).removeprefix("torch."),
        source=source.line(),
        peer=dist.get_global_rank(group, args[2]) if name in PEERS else None,
        group=dist.get_process_group_ranks(group) if group else [],
    )
