"""Training that changes nothing: gradients that are cleared before an update uses them, and learning rates of 0."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from parity.doctor import rewrite
from parity.doctor.evidence import Step
from parity.doctor.evidence.training import Cleared, Event, Still
from torch_impl.instruments import source, values

SMALL = 1e-5  # share of a schedule's own learning rate below which a rate counts as 0


class Unused:
    """Follows gradients from the backward pass to the update, in all observed steps."""

    def __init__(self) -> None:
        self._computed: dict[int, Event | None] = {}  # by parameter, not used yet; what cleared it
        self._still: dict[Optimizer, Still] = {}
        self._moved: set[Optimizer] = set()

    def note_computed(self, parameters: list[torch.Tensor]) -> None:
        """Note the gradients that a backward pass has left."""
        self._computed |= {id(one): None for one in parameters if values.state(one.grad) in values.VALUED}

    @contextmanager
    def clearing(self, parameters: list[torch.Tensor], events: list[Event]) -> Iterator[None]:
        """Note which gradients are cleared within the block, by the last of the events."""
        waiting = [one for one in parameters if id(one) in self._computed and values.state(one.grad) in values.VALUED]
        yield
        self._computed |= {id(one): events[-1] for one in waiting if values.state(one.grad) not in values.VALUED}

    def note_updating(self, stepping: Optimizer, held: list[torch.Tensor], step: Step) -> None:
        """Note an update that is about to find nothing but cleared gradients, and its learning rate."""
        if not any(values.state(one.grad) in values.VALUED for one in held):
            lost = [clear for one in held if (clear := self._computed.get(id(one)))]
            step.cleared += [Cleared(clear=clear, update=source.line()) for clear in lost[:1]]
        if not all(map(_is_still, stepping.param_groups)):
            self._moved.add(stepping)
        elif stepping not in self._still:
            names = (rewrite.name(source.frame(), scheduler) for scheduler in _schedulers(stepping))
            scheduler = next(filter(None, names), "scheduler") if "initial_lr" in stepping.param_groups[0] else ""
            self._still[stepping] = Still(kind=type(stepping).__name__, source=source.line(), scheduler=scheduler)

    def note_updated(self, held: list[torch.Tensor]) -> None:
        """Note that an update has used the gradients."""
        for one in held:
            self._computed.pop(id(one), None)

    def still(self) -> Iterator[tuple[Optimizer, Still]]:
        """Yield the optimizers whose rate was 0 at each update, and is so yet."""
        for optimizer, still in self._still.items():
            if optimizer not in self._moved and all(map(_is_still, optimizer.param_groups)):
                yield optimizer, still


def _is_still(group: dict[str, Any]) -> bool:
    rate = group.get("lr")
    return rate is not None and float(rate) <= SMALL * float(group.get("initial_lr", 0))


def _schedulers(optimizer: Optimizer) -> list[LRScheduler]:
    """Return the schedulers of an optimizer that no other one drives."""
    alive = [one for one in gc.get_objects() if issubclass(type(one), LRScheduler)]
    parts = [id(part) for one in alive for part in getattr(one, "_schedulers", ())]
    return [one for one in alive if getattr(one, "optimizer", None) is optimizer and id(one) not in parts]
