"""Faults of training: samples, losses, optimizers, gradients combined wrongly, wrong devices, processes that fail."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD, Adam, Optimizer
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, DistributedSampler

from parity.selftest.mutate import Patches, constant, misbehaving, replaced, together, wrapped
from torch_impl import losses, optimizers
from torch_impl.models import block
from torch_impl.models.perceptrons import SimpleBlock
from torch_impl.record import data
from torch_impl.strategies import all_reduce, branch_parallel, ddp, hybrid, pipeline, send_recv, tensor_parallel
from torch_impl.strategies.round_robin import RoundRobin

Batch = tuple[tuple[torch.Tensor, ...], torch.Tensor]
Make = Callable[..., Optimizer]
Reduce = Callable[..., None]
Placed = tuple[DistributedDataParallel, Optimizer]
_mse, _cross_entropy = (partial(wrapped, losses, name) for name in ("mse", "cross_entropy"))


def _channels_reversed(tensors: Callable[..., Batch], *args: Any) -> Batch:
    (images,), target = tensors(*args)
    return (images.flip(1),), target


def _targets_of_others(tensors: Callable[..., Batch], *args: Any) -> Batch:
    """Give each sample the target of the previous one."""
    inputs, target = tensors(*args)
    return inputs, target.roll(1, 0)


def _with(**options: Any) -> Patches:
    return wrapped(functional, "cross_entropy", lambda loss, *args, **kwargs: loss(*args, **kwargs, **options))


def _biases_do_not_decay(make: Make, config: Any, parameters: list[nn.Parameter]) -> Optimizer:
    optimizer = make(config, [parameter for parameter in parameters if parameter.dim() > 1])
    biases = [parameter for parameter in parameters if parameter.dim() == 1]
    optimizer.add_param_group({"params": biases, "weight_decay": 0.0})
    return optimizer


def _first_is_frozen(make: Make, config: Any, parameters: list[nn.Parameter]) -> Optimizer:
    optimizer = make(config, parameters)
    start = parameters[0].detach().clone()
    optimizer.register_step_post_hook(lambda *_: parameters[0].data.copy_(start))
    return optimizer


def _one_step_early(*args: Any) -> StepLR:
    schedule = StepLR(*args)
    schedule.step()
    return schedule


def _norm_of_each(clip: Callable[..., None], parameters: Iterable[nn.Parameter], limit: float) -> None:
    for parameter in parameters:
        clip([parameter], limit)


def _summed(reduce: Reduce, tensor: torch.Tensor, *args: Any, **kwargs: Any) -> None:
    """Sum the gradients over the ranks where they should be averaged."""
    reduce(tensor, *args, **kwargs)
    tensor.mul_(dist.get_world_size(kwargs.get("group")))


def _summed_by_hook(place: Callable[..., Placed], *args: Any, **options: Any) -> Placed:
    model, optimizer = place(*args, **options)
    model.register_comm_hook(None, _sum)
    return model, optimizer


def _sum(state: None, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    work = dist.group.WORLD.allreduce([bucket.buffer()])
    return work.get_future().then(lambda future: future.value()[0])


def _weights_only(reduce: Reduce, tensor: torch.Tensor, *args: Any, **kwargs: Any) -> None:
    """Reduce the gradients of weights, but not of biases."""
    if tensor.dim() > 1:
        reduce(tensor, *args, **kwargs)


def _without_exchange(forward: Callable, model: DistributedDataParallel, *args: Any, **kwargs: Any) -> torch.Tensor:
    """Let every rank keep its own gradients."""
    with model.no_sync():
        return forward(model, *args, **kwargs)


def _stopped(model: SimpleBlock, x: torch.Tensor) -> torch.Tensor:
    """Let no gradient flow back through linear1."""
    hidden = model.linear1(x)
    return model.linear2(model.relu(hidden.detach() + 0 * hidden))


def _second_with_first(
    make: Callable[..., None], model: RoundRobin, blocks: list[block.Block], devices: list[torch.device]
) -> None:
    """Put the second block on the first one's device."""
    make(model, blocks, devices)
    model.devices[1] = devices[0]
    model.parts[1].to(devices[0])


def _uneven(
    cut: Callable[..., list[block.Stage]], blocks: list[block.Block], count: int, sizes: Sequence[int] = ()
) -> list[block.Stage]:
    """Put the second stage's first block into the first stage."""
    first, second, *rest = cut(blocks, count, sizes)
    return [block.Stage(first.blocks + second.blocks[:1]), block.Stage(second.blocks[1:]), *rest]


def _in_rank_1(misbehave: Callable[[], None]) -> Patches:
    """Misbehave in rank 1 when it begins to train."""

    def trained(train: Callable[..., None], *args: Any) -> None:
        if dist.get_rank() == 1:
            misbehave()
        train(*args)

    strategies = all_reduce, ddp, hybrid, pipeline, send_recv, tensor_parallel
    return together(*(wrapped(strategy, "train", trained) for strategy in strategies))


FAULTS: dict[str, Patches] = {
    "sampler.epoch": replaced(DistributedSampler, "set_epoch", lambda sampler, epoch: None),
    "sampler.shuffle": constant(DistributedSampler, "shuffle", False),
    "sampler.drop_last": replaced(all_reduce, "DataLoader", partial(DataLoader, drop_last=True)),
    "input.channels": wrapped(data, "tensors", _channels_reversed),
    "target.order": wrapped(data, "tensors", _targets_of_others),
    "loss.sum": _cross_entropy(lambda loss, outputs, target, reduction="mean": loss(outputs, target, "sum")),
    "loss.kind": replaced(losses, "mse", lambda outputs, target, reduction="mean": functional.l1_loss(outputs, target)),
    "mse.reduction": _mse(lambda loss, outputs, target, reduction="mean": loss(outputs, target, "sum") / len(outputs)),
    "mse.broadcast": replaced(
        losses, "mse", lambda outputs, target, reduction="mean": (outputs - target.squeeze(-1)).square().mean()
    ),
    "cross_entropy.double_softmax": wrapped(
        losses, "cross_entropy", lambda loss, outputs, *args, **kwargs: loss(outputs.softmax(-1), *args, **kwargs)
    ),
    "cross_entropy.ignored": _with(ignore_index=0),
    "cross_entropy.label_smoothing": _with(label_smoothing=0.1),
    "sgd.learning_rate": constant(SGD, "lr", 0.001),
    "sgd.dampening": constant(SGD, "dampening", 0.9),
    "sgd.nesterov": constant(SGD, "nesterov", False),
    "schedule.offset": replaced(optimizers, "StepLR", _one_step_early),
    "weight_decay.form": replaced(optimizers, "AdamW", Adam),
    "weight_decay.excludes_bias": wrapped(optimizers, "_optimizer", _biases_do_not_decay),
    "adam.epsilon": constant(Adam, "eps", 1e-7),
    "adam.beta1": constant(Adam, "betas", (0.8, 0.999)),
    "adam.amsgrad": constant(Adam, "amsgrad", True),
    "update.frozen": wrapped(optimizers, "_optimizer", _first_is_frozen),
    "clip.scope": wrapped(optimizers, "clip_by_global_norm", _norm_of_each),
    "clip.forgotten": replaced(optimizers, "clip_by_global_norm", lambda parameters, limit: None),
    "clip.value": replaced(optimizers, "clip_by_global_norm", nn.utils.clip_grad_value_),
    "gradient.sum": together(wrapped(dist, "all_reduce", _summed), wrapped(ddp, "place", _summed_by_hook)),
    "gradient.unreduced": wrapped(DistributedDataParallel, "forward", _without_exchange),
    "gradient.partly_unreduced": wrapped(dist, "all_reduce", _weights_only),
    "gradient.kept": replaced(Optimizer, "zero_grad", lambda optimizer: None),
    "gradient.stopped": replaced(SimpleBlock, "forward", _stopped),
    "batch_norm.buffers": wrapped(ddp, "place", lambda place, *args, **options: place(*args, broadcast_buffers=False)),
    "send_recv.gradient": together(
        replaced(send_recv, "send_gradients", lambda received: None),
        replaced(send_recv, "receive_gradients", lambda outputs, source: None),
    ),
    "placement.layer": together(
        wrapped(RoundRobin, "__init__", _second_with_first),
        wrapped(send_recv, "stages", _uneven),
        wrapped(pipeline, "stages", _uneven),
        wrapped(branch_parallel, "branch", lambda branch, module, device: branch(module, None)),
    ),
    "placement.move": replaced(RoundRobin, "forward", lambda model, *tensors: block.Stage(model.blocks)(*tensors)),
    **misbehaving(_in_rank_1),
}
