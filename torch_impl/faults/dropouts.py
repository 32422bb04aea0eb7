"""Faults of dropout: other masks, another rate, or dropout where there should be none."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import nn

from torch_impl.dropout import Key, keep
from torch_impl.faults.mutate import Patches, constant, replaced
from torch_impl.record import masks
from torch_impl.record.masks import Masks
from torch_impl.strategies import single

Drawn = Callable[[Masks, nn.Module], AbstractContextManager]


def _frameworks_own(drawn: Drawn) -> Drawn:
    def changed(self: Masks, model: nn.Module) -> AbstractContextManager:
        torch.manual_seed(self.seed)
        return nullcontext()

    return changed


def _as_replica_0(make: Callable[..., None]) -> Callable[..., None]:
    return lambda self, seed, replica: make(self, seed, 0)


def _as_step_0(on_step: Callable[[Masks], None]) -> Callable[[Masks], None]:
    return lambda self: self._calls.clear()


def _unscaled(dropout: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def changed(x: torch.Tensor, numbers: torch.Tensor, rate: float, key: Key) -> torch.Tensor:
        return x * keep(numbers, rate, key).to(x.dtype)

    return changed


@torch.no_grad()
def _in_training(model: nn.Module, inputs: tuple[torch.Tensor, ...]) -> torch.Tensor:
    torch.manual_seed(0)
    return model(*inputs)


FAULTS: dict[str, Patches] = {
    "dropout.generator": replaced(Masks, "drawn", _frameworks_own),
    "dropout.replicas": replaced(Masks, "__init__", _as_replica_0),
    "dropout.step": replaced(Masks, "on_step", _as_step_0),
    "dropout.rate": constant(nn.Dropout, "p", 0.2),
    "dropout.scale": replaced(masks, "dropout", _unscaled),
    "dropout.attention": constant(nn.MultiheadAttention, "dropout", 0.0),
    "evaluation.mode": replaced(single, "evaluate", lambda evaluate: _in_training),
}
