"""Tensor parallelism with DTensor: pairs of Linear layers split over the ranks (Shoeybi et al. 2019, Megatron-LM).

The first layer of a pair (`linear1`) is split by output features (columns), the second (`linear2`) by input features
(rows). So each rank goes from its columns to its part of the output without the other ranks, and the parts are summed.
"""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from torch_impl.strategies.single import MakeModel, MakeOptimizer, Placed, evaluate, train

__all__ = ["evaluate", "place", "train"]


def place(make_model: MakeModel, make_optimizer: MakeOptimizer, devices: list[torch.device]) -> Placed:
    """Put the model on every rank's device, except that each rank has only its shard of `linear1` and `linear2`."""
    model = make_model().to(devices[dist.get_rank()])
    mesh = init_device_mesh(devices[0].type, (dist.get_world_size(),))
    # Between the two layers keep a DTensor, because only a DTensor knows that the last shards may be smaller.
    styles = {"linear1": ColwiseParallel(use_local_output=False), "linear2": RowwiseParallel()}
    linears = [name for name, _ in model.named_modules() if name.rpartition(".")[2] in styles]
    parallelize_module(model, mesh, {name: styles[name.rpartition(".")[2]] for name in linears})
    return model, make_optimizer(model.parameters())
