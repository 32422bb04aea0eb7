"""Tensor parallelism by DTensor: pairs of Linear layers, the first split by columns, the second by rows."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.optim import Optimizer

from torch_impl.strategies.single import MakeModel, MakeOptimizer, evaluate, train

__all__ = ["evaluate", "place", "train"]


def place(
    make_model: MakeModel, make_optimizer: MakeOptimizer, devices: list[torch.device]
) -> tuple[nn.Module, Optimizer]:
    """Every rank has the whole model but for `linear1` and `linear2`, of which it has a part each.

    Between the two each rank has some of the hidden features, and needs no others; behind the second
    the ranks add their parts of the output up.
    """
    model = make_model().to(devices[dist.get_rank()])
    mesh = init_device_mesh(devices[0].type, (dist.get_world_size(),))
    # Kept as a DTensor between the two, which knows that the last parts may be smaller.
    styles = {"linear1": ColwiseParallel(use_local_output=False), "linear2": RowwiseParallel()}
    linears = [name for name, _ in model.named_modules() if name.rpartition(".")[2] in styles]
    parallelize_module(model, mesh, {name: styles[name.rpartition(".")[2]] for name in linears})
    return model, make_optimizer(model.parameters())
