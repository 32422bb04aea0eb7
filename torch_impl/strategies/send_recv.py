"""Model parallelism over processes: a stage per rank; activations are sent forward, gradients sent back."""

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch.optim import Optimizer

from torch_impl.losses import Loss
from torch_impl.models.block import Stage, as_tuple, stages
from torch_impl.strategies.single import MakeModel, MakeOptimizer, OnStep, Steps

Activations = tuple[torch.Tensor, ...]
Shapes = tuple[torch.Size, ...]
# What a neighbour and this rank have told each other of the tensors that pass between them: shape, dtype and
# requires_grad of each, by the neighbour's rank and the shapes of the model's inputs.
Announced = dict[tuple[int, Shapes], list[tuple[torch.Size, torch.dtype, bool]]]


def place(
    make_model: MakeModel, make_optimizer: MakeOptimizer, devices: list[torch.device], stage_blocks: Sequence[int] = ()
) -> tuple[Stage, Optimizer]:
    """Put this rank's stage on its device, with an optimizer for it.

    `stage_blocks`: of how many of the model's blocks each stage consists, by default nearly as many each.
    """
    rank = dist.get_rank()
    stage = stages(make_model().blocks(), dist.get_world_size(), stage_blocks)[rank].place(devices[rank])
    return stage, make_optimizer(stage.parameters())


def train(model: Stage, optimizer: Optimizer, loss: Loss, steps: Steps, on_step: OnStep) -> None:
    """Make one update per step, with one micro-batch after the other through all stages; then call `on_step`."""
    model.train()
    _, following = neighbours()
    announced: Announced = {}
    for micro_batches in steps:
        optimizer.zero_grad()
        for inputs, target, share in micro_batches:
            received, outputs = forward(model, inputs, announced)
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
    """Return the outputs on the last rank, None on the others."""
    model.eval()
    _, outputs = forward(model, inputs, {}, group)
    return outputs[0] if neighbours(group)[1] is None else None


def forward(
    model: Stage, inputs: tuple[torch.Tensor, ...], announced: Announced, group: dist.ProcessGroup | None = None
) -> tuple[Activations, Activations]:
    """Run this rank's stage, and send its outputs on.

    Returns what the stage received (from the previous rank, or `inputs` on the first) and its outputs. Every rank gets
    the same `inputs`: stages pass on tensors of the same shapes whenever those of the inputs are the same, and announce
    them once. `group` holds the ranks of the pipeline, by default all.
    """
    previous, following = neighbours(group)
    shapes = tuple(tensor.shape for tensor in inputs)
    if previous is None:
        received = tuple(tensor.to(model.device) for tensor in inputs)
    else:
        received = receive(previous, model.device, shapes, announced)
    outputs = as_tuple(model(*received))
    if following is not None:
        send(outputs, following, shapes, announced)
    return received, outputs


def neighbours(group: dist.ProcessGroup | None = None) -> tuple[int | None, int | None]:
    """Return the ranks of the previous and of the following stage; None at the ends."""
    ranks = dist.get_process_group_ranks(group)
    position = ranks.index(dist.get_rank())
    return (ranks[position - 1] if position > 0 else None), (ranks[position + 1] if position + 1 < len(ranks) else None)


def send(activations: Activations, to: int, shapes: Shapes, announced: Announced) -> None:
    """Send tensors to the rank `to`.

    Unless it was told before, their shapes, dtypes and requires_grad go first: it has to allocate buffers for them.
    """
    if (to, shapes) not in announced:
        announced[to, shapes] = [(tensor.shape, tensor.dtype, tensor.requires_grad) for tensor in activations]
        dist.send_object_list([announced[to, shapes]], to)
    for tensor in activations:
        dist.send(tensor.detach().contiguous(), to)


def receive(source: int, device: torch.device, shapes: Shapes, announced: Announced) -> Activations:
    """Receive what the rank `source` sent.

    The tensors are leaves of this rank's autograd graph, because dist.send does not differentiate; so the gradients
    have to be sent back explicitly.
    """
    if (source, shapes) not in announced:
        told: list = [None]
        dist.recv_object_list(told, source)
        announced[source, shapes] = told[0]
    received = []
    for shape, dtype, requires_grad in announced[source, shapes]:
        tensor = torch.empty(shape, dtype=dtype, device=device)
        dist.recv(tensor, source)
        received.append(tensor.requires_grad_(requires_grad))
    return tuple(received)


def send_gradients(received: Activations) -> None:
    """Send the gradients of the received tensors back to the previous rank, if there is one."""
    previous, _ = neighbours()
    if previous is not None:
        for tensor in differentiable(received):
            dist.send(tensor.grad.contiguous(), previous)


def receive_gradients(outputs: Activations, source: int) -> None:
    """Receive the gradients of the outputs that were sent, and continue the backward pass from them."""
    sent = differentiable(outputs)
    gradients = [torch.empty_like(tensor, memory_format=torch.contiguous_format) for tensor in sent]
    for gradient in gradients:
        dist.recv(gradient, source)
    torch.autograd.backward(sent, gradients)


def differentiable(activations: Activations) -> list[torch.Tensor]:
    """Return the tensors that have a gradient; an input that is only passed along has none."""
    return [tensor for tensor in activations if tensor.requires_grad]
