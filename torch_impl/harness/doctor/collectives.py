"""The calls that wait for other ranks, noted before they are made: what is on file when a rank hangs."""

from typing import Any

import torch
import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from parity.doctor.evidence import Collective
from parity.doctor.files import Files
from torch_impl.harness.doctor import source

PEERS = ("send", "recv")
# What the program calls.
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
    """Within it, every call of torch.distributed is noted."""

    def __init__(self, files: Files):
        super().__init__()
        self.files = files

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if func.namespace in ("c10d", "_c10d_functional") and (noted := _described(func, args)):
            self.files.note(noted)
        return func(*args, **(kwargs or {}))


def _described(func: Any, args: tuple) -> Collective | None:
    """The call; None for one that does not wait by itself."""
    name = func.overloadpacket.__name__.rstrip("_")
    tensors = [leaf for leaf in tree_leaves(args) if isinstance(leaf, torch.Tensor)]
    if name in ("wait_tensor", "_wrap_tensor_autograd") or not tensors:
        return None
    group = next((dist.ProcessGroup.unbox(given) for given in args if isinstance(given, torch.ScriptObject)), None)
    return Collective(
        operation=NAMES.get(name, name),
        shape=list(tensors[0].shape),
        dtype=str(tensors[0].dtype).removeprefix("torch."),
        source=source.line(),
        peer=dist.get_global_rank(group, args[2]) if name in PEERS else None,
        group=dist.get_process_group_ranks(group) if group else [],
    )
