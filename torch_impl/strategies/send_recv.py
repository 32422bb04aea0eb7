"""Model parallelism over processes: a stage per rank; activations are sent on, and gradients sent back."""

from collections.abc import Callable, Iterable

import torch
import torch.distributed as dist
from torch.optim import Optimizer

from torch_impl.losses import Loss
from torch_impl.models.block import Stage, as_tuple, stages
from torch_impl.strategies.single import MakeModel, MakeOptimizer, MicroBatch

Activations = tuple[torch.Tensor, ...]


def place(make_model: MakeModel, make_optimizer: MakeOptimizer, devices: list[torch.device]) -> tuple[Stage, Optimizer]:
    """This rank's stage on its device, with an optimizer of its own."""
    rank = dist.get_rank()
    stage = stages(make_model().blocks(), dist.get_world_size())[rank].place(devices[rank])
    return stage, make_optimizer(stage.parameters())


def train(
    model: Stage,
    optimizer: Optimizer,
    loss: Loss,
    steps: Iterable[list[MicroBatch]],
    on_step: Callable[[], None] = lambda: None,
) -> None:
    """One update per step on every rank; a micro-batch goes all the way forward and back before the next."""
    model.train()
    _, following = neighbours()
    for micro_batches in steps:
        optimizer.zero_grad()
        for inputs, target, share in micro_batches:
            received, outputs = forward(model, inputs)
            if following is None:
                value = loss(outputs[0], target.to(outputs[0].device)) * share
                value.backward()
            else:
                receive_gradients(outputs, following)
            send_gradients(received)
        optimizer.step()
        on_step()


@torch.no_grad()
def evaluate(
    model: Stage, inputs: tuple[torch.Tensor, ...], group: dist.ProcessGroup | None = None
) -> torch.Tensor | None:
    """The outputs, on the last rank."""
    model.eval()
    _, outputs = forward(model, inputs, group)
    return outputs[0] if neighbours(group)[1] is None else None


def forward(
    model: Stage, inputs: tuple[torch.Tensor, ...], group: dist.ProcessGroup | None = None
) -> tuple[Activations, Activations]:
    """What the stage got, from the rank before or from outside, and what it made of it and sent on."""
    previous, following = neighbours(group)
    if previous is None:
        received = tuple(tensor.to(model.device) for tensor in inputs)
    else:
        received = receive(previous, model.device)
    outputs = as_tuple(model(*received))
    if following is not None:
        send(outputs, following)
    return received, outputs


def neighbours(group: dist.ProcessGroup | None = None) -> tuple[int | None, int | None]:
    """The ranks of the stage before and of the one behind; None at the ends."""
    ranks = dist.get_process_group_ranks(group)
    here = ranks.index(dist.get_rank())
    return (ranks[here - 1] if here > 0 else None), (ranks[here + 1] if here + 1 < len(ranks) else None)


def send(activations: Activations, to: int) -> None:
    """First what is to come, since the receiver has to make room for it, and what needs a gradient."""
    dist.send_object_list([[(tensor.shape, tensor.dtype, tensor.requires_grad) for tensor in activations]], to)
    for tensor in activations:
        dist.send(tensor.detach().contiguous(), to)


def receive(source: int, device: torch.device) -> Activations:
    """What the other rank sent, as the leaves of this rank's graph: dist.send does not differentiate."""
    announced: list = [None]
    dist.recv_object_list(announced, source)
    received = []
    for shape, dtype, requires_grad in announced[0]:
        tensor = torch.empty(shape, dtype=dtype, device=device)
        dist.recv(tensor, source)
        received.append(tensor.requires_grad_(requires_grad))
    return tuple(received)


def send_gradients(received: Activations) -> None:
    """Back to where the activations came from."""
    previous, _ = neighbours()
    if previous is not None:
        for tensor in differentiable(received):
            dist.send(tensor.grad.contiguous(), previous)


def receive_gradients(outputs: Activations, source: int) -> None:
    """Go on with the backward pass from the gradients of what was sent."""
    sent = differentiable(outputs)
    gradients = [torch.empty_like(tensor, memory_format=torch.contiguous_format) for tensor in sent]
    for gradient in gradients:
        dist.recv(gradient, source)
    torch.autograd.backward(sent, gradients)


def differentiable(activations: Activations) -> list[torch.Tensor]:
    """Those that have a gradient: an input that is only carried along has none."""
    return [tensor for tensor in activations if tensor.requires_grad]
