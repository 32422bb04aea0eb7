"""Pipeline parallelism (torch.distributed.pipelining): a stage per rank, with several micro-batches in flight.

Schedules: GPipe (Huang et al. 2018) and 1F1B (Narayanan et al. 2019).
"""

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.func import functional_call
from torch.optim import Optimizer

from torch_impl.losses import Loss
from torch_impl.models.block import Stage, Tensors, as_tuple, stages
from torch_impl.strategies import send_recv
from torch_impl.strategies.single import MakeModel, MakeOptimizer, MicroBatch, OnStep, Steps

SCHEDULES = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}


class SamplesFirst(nn.Module):
    """The first stage, for inputs whose axis of samples, `dim`, stands first, where a schedule splits them.

    A schedule also splits along other axes, but into views that are not contiguous, and PyTorch before 2.13 refuses
    these.
    """

    def __init__(self, module: Stage, dim: int):
        super().__init__()
        self.module, self.dim = module, dim

    def forward(self, *inputs: torch.Tensor) -> Tensors:
        return self.module(*(tensor.movedim(0, self.dim).contiguous() for tensor in inputs))


class Pipeline:
    """This rank's stage, and the schedule of the micro-batches; `dim` is the axis of the samples."""

    def __init__(self, stage: PipelineStage, module: Stage, schedule: str, dim: int):
        self.stage, self.module = stage, module
        self.kind, self.dim = SCHEDULES[schedule], dim
        self.schedule: ScheduleGPipe | Schedule1F1B | None = None

    def step(self, micro_batches: list[MicroBatch], loss: Loss) -> None:
        """Run the forward and backward passes of all micro-batches, which must be of one size."""
        self.micro_batches, self.loss = micro_batches, loss
        if self.schedule is None:
            # scale_grads=False: the losses are weighted already, so their gradients must be summed, not averaged.
            self.schedule = self.kind(self.stage, len(micro_batches), self._weighted_loss, scale_grads=False)
        inputs = zip(*(inputs for inputs, _, _ in micro_batches), strict=True)
        whole = [samples_first(torch.cat(parts, self.dim), self.dim).to(self.stage.device) for parts in inputs]
        numbers = torch.arange(len(micro_batches))
        self.schedule.step(*(whole if self.stage.is_first else ()), target=numbers, return_outputs=False)

    def _weighted_loss(self, outputs: torch.Tensor, number: torch.Tensor) -> torch.Tensor:
        """Return the loss of a micro-batch, given its number as the target.

        The schedule splits targets along axis 0, which need not be the axis of the samples. So it gets numbers to
        split, and the actual target is looked up by number.
        """
        _, target, share = self.micro_batches[int(number)]
        return self.loss(outputs, target.to(outputs.device)) * share


def place(
    make_model: MakeModel,
    make_optimizer: MakeOptimizer,
    devices: list[torch.device],
    example: tuple[torch.Tensor, ...],
    schedule: str = "gpipe",
    dim: int = 0,
    stage_blocks: Sequence[int] = (),
    group: dist.ProcessGroup | None = None,
) -> tuple[Pipeline, Optimizer]:
    """Put this rank's stage on its device.

    `example` is the inputs of one micro-batch, from which the shapes between the stages are computed. `stage_blocks`
    is as in send_recv.py. `group` holds the ranks of the pipeline, by default all.
    """
    index, count = dist.get_rank(group), dist.get_world_size(group)
    parts = stages(make_model().blocks(), count, stage_blocks)
    device = devices[dist.get_rank()]
    modules = [SamplesFirst(parts[0], dim), *parts[1:]]
    shapes = boundaries(modules, tuple(samples_first(tensor, dim) for tensor in example), device)
    module = parts[index].place(device)
    stage = PipelineStage(modules[index], index, count, device, shapes[index], shapes[index + 1], group=group)
    return Pipeline(stage, module, schedule, dim), make_optimizer(module.parameters())


def samples_first(tensor: torch.Tensor, dim: int) -> torch.Tensor:
    """Return a contiguous tensor whose axis `dim` stands first."""
    return tensor.movedim(dim, 0).contiguous()


def boundaries(
    modules: Sequence[nn.Module], example: tuple[torch.Tensor, ...], device: torch.device
) -> list[tuple[torch.Tensor, ...]]:
    """Return the tensors that enter the first stage, pass from each stage to the next, and leave the last one.

    They are fake tensors: they have shape and dtype, and nothing is computed. They and the parameters, which must still
    be on the CPU, are on `device`, because autocast applies to the ops of one kind of device.
    """
    with FakeTensorMode(allow_non_fake_inputs=True) as fake:
        passed = [tuple(fake.from_tensor(tensor).to(device) for tensor in example)]
        for module in modules:
            held: dict[str, torch.Tensor] = {**dict(module.named_parameters()), **dict(module.named_buffers())}
            state = {name: fake.from_tensor(tensor).to(device) for name, tensor in held.items()}
            passed.append(as_tuple(functional_call(module, state, passed[-1])))
    return passed


def train(model: Pipeline, optimizer: Optimizer, loss: Loss, steps: Steps, on_step: OnStep) -> None:
    """Make one update per step on every rank; then call `on_step`."""
    model.module.train()
    for micro_batches in steps:
        optimizer.zero_grad()
        model.step(micro_batches, loss)
        optimizer.step()
        on_step()


def evaluate(model: Pipeline, inputs: tuple[torch.Tensor, ...]) -> torch.Tensor | None:
    """Return the outputs on the last rank (None elsewhere), for a batch of any size, not split into micro-batches."""
    return send_recv.evaluate(model.module, inputs, model.stage.group)
