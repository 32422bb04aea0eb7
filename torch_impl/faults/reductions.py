"""Faults of reductions: gradients that are combined in another way, or do not arrive."""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from parity.data.batches import Batch, Dataset
from torch_impl.faults.mutate import Patches, replaced, together
from torch_impl.models.simple_block import SimpleBlock
from torch_impl.strategies import ddp, send_recv

Reduce = Callable[..., None]
Place = Callable[..., tuple[DistributedDataParallel, Optimizer]]


def _summed(reduce: Reduce) -> Reduce:
    """Sum the gradients over the ranks where they should be averaged."""

    def changed(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> None:
        reduce(tensor, *args, **kwargs)
        tensor.mul_(dist.get_world_size(kwargs.get("group")))

    return changed


def _summed_by_hook(place: Place) -> Place:
    def changed(*args: Any, **options: Any) -> tuple[DistributedDataParallel, Optimizer]:
        model, optimizer = place(*args, **options)
        model.register_comm_hook(None, _sum)
        return model, optimizer

    return changed


def _sum(state: None, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    work = dist.group.WORLD.allreduce([bucket.buffer()])
    return work.get_future().then(lambda future: future.value()[0])


def _weights_only(reduce: Reduce) -> Reduce:
    """Reduce the gradients of weights, but not of biases."""

    def changed(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> None:
        if tensor.dim() > 1:
            reduce(tensor, *args, **kwargs)

    return changed


def _without_exchange(forward: Callable) -> Callable:
    """Let every rank keep its own gradients."""

    def changed(self: DistributedDataParallel, *args: Any, **kwargs: Any) -> torch.Tensor:
        with self.no_sync():
            return forward(self, *args, **kwargs)

    return changed


def _own_buffers(place: Place) -> Place:
    return lambda *args, **options: place(*args, broadcast_buffers=False)


def _mean_of_means(batch: Callable[..., Batch]) -> Callable[..., Batch]:
    """Give every part of a batch the same share, whatever its size."""

    def changed(self: Dataset, indices: Any, whole: int = 0) -> Batch:
        return batch(self, indices, whole)._replace(share=1 / (self.case.replicas * self.case.accumulate))

    return changed


def _added_up(batch: Callable[..., Batch]) -> Callable[..., Batch]:
    """Sum over the micro-batches instead of averaging."""
    return lambda self, indices, whole=0: batch(self, indices)


def _stopped(forward: Callable) -> Callable:
    """Let no gradient flow back through linear1."""

    def changed(self: SimpleBlock, x: torch.Tensor) -> torch.Tensor:
        hidden = self.linear1(x)
        return self.linear2(self.relu(hidden.detach() + 0 * hidden))

    return changed


FAULTS: dict[str, Patches] = {
    "gradient.sum": together(replaced(dist, "all_reduce", _summed), replaced(ddp, "place", _summed_by_hook)),
    "gradient.unreduced": replaced(DistributedDataParallel, "forward", _without_exchange),
    "gradient.partly_unreduced": replaced(dist, "all_reduce", _weights_only),
    "gradient.kept": replaced(Optimizer, "zero_grad", lambda zero_grad: lambda self: None),
    "gradient.stopped": replaced(SimpleBlock, "forward", _stopped),
    "batch.uneven": replaced(Dataset, "batch", _mean_of_means),
    "accumulation.normalisation": replaced(Dataset, "batch", _added_up),
    "batch_norm.buffers": replaced(ddp, "place", _own_buffers),
    "send_recv.gradient": together(
        replaced(send_recv, "send_gradients", lambda send: lambda received: None),
        replaced(send_recv, "receive_gradients", lambda receive: lambda outputs, source: None),
    ),
}
