"""The strategies in PyTorch as a user writes them from its documentation, with nothing of torch_impl/strategies.

Each function that is named as a strategy gets a model that is built and has its weights, a function that makes the
optimizer, the loss, the devices and the axis of the samples. It returns the module that this rank trains, and the
function that makes one step.
"""

import functools
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.distributed.pipelining.microbatch import TensorChunkSpec
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from parity.runtime.drive import Program, Run
from torch_impl import losses, models, optimizers
from torch_impl.models.block import Stage, as_tuple, stages
from torch_impl.record import data, weights


def program(run: Run, names: list[str]) -> Program:
    """Return the run's case as a program, trained by the loop of its strategy in this file."""
    model = models.build(run.case.model)
    weights.load(model, run.weights)
    strategy = globals()[run.case.strategy]
    make_optimizer = functools.partial(optimizers.build, run.case)
    devices = [torch.device(name) for name in names]
    module, step = strategy(model, make_optimizer, losses.build(run.case.loss), devices, run.dataset.batch_axis)
    module.train()
    batches = data.steps(run)
    if strategy in (pipeline, hybrid):  # a user's loader returns whole batches, which the schedule cuts up
        batches = (_whole(micro_batches, run.dataset.batch_axis) for micro_batches in batches)

    def train(batches: Iterator[Any], on_step: Callable[[], None]) -> None:
        for batch in batches:
            step(batch)
            on_step()

    return Program(module, batches, train)


def parameters(model: Any) -> list[np.ndarray]:
    """Return this rank's parameters, of a DTensor its shard."""
    own = getattr(model, "module", model).parameters()
    return [(p.to_local() if isinstance(p, DTensor) else p).detach().cpu().numpy().copy() for p in own]


def single(model, make_optimizer, loss, devices, dim):
    model.to(devices[0])
    return model, _accumulating(model, make_optimizer(model.parameters()), loss, devices[0])


def round_robin(model, make_optimizer, loss, devices, dim):
    class Spread(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = model.blocks()
            self.parts = nn.ModuleList(
                nn.ModuleList(block.modules).to(devices[i % len(devices)]) for i, block in enumerate(self.blocks)
            )

        def forward(self, *tensors):
            for i, block in enumerate(self.blocks):
                tensors = as_tuple(block.forward(*(tensor.to(devices[i % len(devices)]) for tensor in tensors)))
            return tensors[0]

    spread = Spread()
    last = devices[(len(spread.blocks) - 1) % len(devices)]
    return spread, _accumulating(spread, make_optimizer(spread.parameters()), loss, last)


def data_parallel(model, make_optimizer, loss, devices, dim):
    model.to(devices[0])
    parallel = nn.DataParallel(model, device_ids=devices, dim=dim)
    return model, _accumulating(parallel, make_optimizer(model.parameters()), loss, devices[0])


def ddp(model, make_optimizer, loss, devices, dim):
    device = devices[dist.get_rank()]
    model = DistributedDataParallel(model.to(device))
    optimizer = make_optimizer(model.parameters())

    def step(micro_batches):
        optimizer.zero_grad()
        for i, (inputs, target, share) in enumerate(micro_batches):
            with model.no_sync() if i + 1 < len(micro_batches) else nullcontext():
                outputs = model(*(tensor.to(device) for tensor in inputs))
                (loss(outputs, target.to(device)) * share * len(devices)).backward()
        optimizer.step()

    return model, step


def all_reduce(model, make_optimizer, loss, devices, dim):
    device = devices[dist.get_rank()]
    optimizer = make_optimizer(model.to(device).parameters())

    def step(micro_batches):
        optimizer.zero_grad()
        for inputs, target, share in micro_batches:
            (loss(model(*(tensor.to(device) for tensor in inputs)), target.to(device)) * share).backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()

    return model, step


def send_recv(model, make_optimizer, loss, devices, dim):
    rank, last = dist.get_rank(), dist.get_world_size() - 1
    device = devices[rank]
    stage = stages(model.blocks(), last + 1)[rank].to(device)
    optimizer = make_optimizer(stage.parameters())
    expected, told = [], []  # the shapes and dtypes of what is received and sent, which are always the same

    def step(micro_batches):
        optimizer.zero_grad()
        for inputs, target, share in micro_batches:
            if rank:
                expect(rank - 1)
                received = [torch.empty(shape, dtype=dtype, device=device) for shape, dtype in expected]
                for tensor in received:
                    dist.recv(tensor, rank - 1)
                    tensor.requires_grad_()
            else:
                received = [tensor.to(device) for tensor in inputs]
            outputs = as_tuple(stage(*received))
            if rank < last:
                tell(outputs, rank + 1)
                for tensor in outputs:
                    dist.send(tensor.detach().contiguous(), rank + 1)
                gradients = [torch.empty_like(tensor) for tensor in outputs]
                for gradient in gradients:
                    dist.recv(gradient, rank + 1)
                torch.autograd.backward(outputs, gradients)
            else:
                (loss(outputs[0], target.to(device)) * share).backward()
            if rank:
                for tensor in received:
                    dist.send(tensor.grad.contiguous(), rank - 1)
        optimizer.step()

    def tell(outputs, to):
        if not told:
            told.extend((tensor.shape, tensor.dtype) for tensor in outputs)
            dist.send_object_list([told], to)

    def expect(source):
        if not expected:
            announced = [None]
            dist.recv_object_list(announced, source)
            expected.extend(announced[0])

    return stage, step


def pipeline(model, make_optimizer, loss, devices, dim):
    return _pipelined(model, make_optimizer, loss, devices, dim, None)


def hybrid(model, make_optimizer, loss, devices, dim):
    mesh = init_device_mesh(devices[0].type, (len(devices) // 2, 2), mesh_dim_names=("replica", "stage"))
    return _pipelined(model, make_optimizer, loss, devices, dim, mesh)


def branch_parallel(model, make_optimizer, loss, devices, dim):
    model.to(devices[0])
    for module in list(model.modules()):
        for name, child in module.named_children():
            if isinstance(child, nn.MultiheadAttention):
                setattr(module, name, Attention(child, devices))
    return model, _accumulating(model, make_optimizer(model.parameters()), loss, devices[0])


def tensor_parallel(model, make_optimizer, loss, devices, dim):
    device = devices[dist.get_rank()]
    model.to(device)
    mesh = init_device_mesh(device.type, (len(devices),))
    for layer in (*model.transformer.encoder.layers, *model.transformer.decoder.layers):
        parallelize_module(layer, mesh, {"linear1": ColwiseParallel(), "linear2": RowwiseParallel()})
    return model, _accumulating(model, make_optimizer(model.parameters()), loss, device)


class Attention(nn.Module):
    """Multi-head attention, sequence-first, with a device for each of its three projections."""

    batch_first = False

    def __init__(self, packed: nn.MultiheadAttention, devices: list[torch.device]):
        super().__init__()
        self.heads, width = packed.num_heads, packed.embed_dim
        self.devices = [devices[i % len(devices)] for i in range(3)]
        self.projections = nn.ModuleList(nn.Linear(width, width, device=device) for device in self.devices)
        self.out_proj = packed.out_proj
        with torch.no_grad():
            for i, projection in enumerate(self.projections):
                projection.weight.copy_(packed.in_proj_weight[i * width : (i + 1) * width])
                projection.bias.copy_(packed.in_proj_bias[i * width : (i + 1) * width])

    def forward(self, query, key, value, attn_mask=None, **_):
        inputs = [x.to(device) for x, device in zip((query, key, value), self.devices, strict=True)]
        outputs = [layer(x) for layer, x in zip(self.projections, inputs, strict=True)]
        q, k, v = (x.to(query.device).unflatten(-1, (self.heads, -1)).permute(1, 2, 0, 3) for x in outputs)
        attended = functional.scaled_dot_product_attention(q, k, v, attn_mask)
        return self.out_proj(attended.permute(2, 0, 1, 3).flatten(2)), None


def _accumulating(model, optimizer, loss, device):
    """Return the plain training step, which adds up the gradients of its micro-batches."""

    def step(micro_batches):
        optimizer.zero_grad()
        for inputs, target, share in micro_batches:
            outputs = model(*(tensor.to(device) for tensor in inputs))
            (loss(outputs, target.to(device)) * share).backward()
        optimizer.step()

    return step


def _pipelined(model, make_optimizer, loss, devices, dim, mesh):
    """Return a stage and its step: GPipe over all ranks, or over each row of the mesh with a sum over its columns."""
    group, replicas = (mesh.get_group("stage"), mesh.get_group("replica")) if mesh else (None, None)
    index, count = dist.get_rank(group), dist.get_world_size(group)
    device = devices[dist.get_rank()]
    module: Stage = stages(model.blocks(), count)[index].to(device)
    stage = PipelineStage(module, index, count, device, group=group)
    optimizer, rows = make_optimizer(module.parameters()), dist.get_world_size(replicas) if mesh else 1
    schedules = {}

    def mean(outputs, target):  # the schedule cuts targets along axis 0, where their samples are
        return loss(outputs, target.transpose(0, dim)) / rows

    def step(batch):
        inputs, target, number = batch
        if number not in schedules:
            chunks = (TensorChunkSpec(dim),) * len(inputs)
            schedules[number] = ScheduleGPipe(stage, number, mean, args_chunk_spec=chunks)
        optimizer.zero_grad()
        if index == 0:
            schedules[number].step(*(tensor.to(device) for tensor in inputs))
        elif index == count - 1:
            schedules[number].step(target=target.transpose(0, dim).to(device))
        else:
            schedules[number].step()
        if mesh:
            for parameter in module.parameters():
                dist.all_reduce(parameter.grad, group=replicas)
        optimizer.step()

    return module, step


def _whole(micro_batches, dim):
    """Return the inputs, the target and the number of all micro-batches together."""
    inputs = [torch.cat(parts, dim) for parts in zip(*(inputs for inputs, _, _ in micro_batches), strict=True)]
    return inputs, torch.cat([target for _, target, _ in micro_batches], dim), len(micro_batches)
