"""What leads to an update: the order of a training step's events, and updates that change nothing.

Events are backward passes, clipping and clearing of gradients, updates, schedules. An update changes nothing if the
gradients are cleared before it uses them, or with a learning rate of 0.
"""

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch.nn.utils import clip_grad
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from parity.core.patches import around
from parity.core.plain import subclasses
from parity.doctor import rewrite
from parity.doctor.evidence import Cleared, Code, Event, Step, Still
from torch_impl.instruments import source, values

SMALL = 1e-5  # share of a schedule's own learning rate below which a rate counts as 0


class Events:
    """Records events in a step; those for which Training has no hook are patched here."""

    def __init__(self, step: Step):
        self.step = step
        self.scaled = False  # whether the gradients are those of a loss that a GradScaler has scaled
        self._inside = False  # a scheduler may step others, which is one event

    def note(self, what: Any) -> None:
        """Record an event; equal ones in a row of one line, as where gradients are clipped by device, are one entry."""
        statement = rewrite.statement(source.spot())
        text = statement.text() if statement else ""
        event = Event(what=what, source=source.line(), statement=text, scaled=self.scaled and what == "clip")
        before = self.step.events[-1] if self.step.events else None
        if before and (before.what, before.source) == (event.what, event.source):
            before.count += 1
        else:
            self.step.events.append(event)

    def note_scaled_update(self, scaler: Any, stepping: Any) -> None:
        """Tell the clips of scaled gradients how they are unscaled before, by the scaler of this update."""
        names = [rewrite.name(source.frame(), part) for part in (scaler, stepping)]
        for event in self.step.events if all(names) else ():
            if event.scaled and not event.unscale:
                event.unscale = f"{names[0]}.unscale_({names[1]})"

    def patches(self) -> Iterator[Any]:
        """Yield patches of clipping and of learning-rate schedulers."""
        # In the helpers of torch's functions, because a program may have imported the functions themselves.
        for name in ("_clip_grads_with_norm_", "_group_tensors_by_device_and_dtype"):
            yield around(clip_grad, name, self._clip)
        for kind in subclasses(LRScheduler):
            if "step" in vars(kind):
                yield around(kind, "step", self._schedule)

    def _clip(self, clip: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if _caller() in ("clip_grad_norm_", "clip_grad_value_"):
            self.note("clip")
        return clip(*args, **kwargs)

    def _schedule(self, step: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if not self._inside and _caller() != "_initial_step":  # by which a new scheduler steps once by itself
            self.note("schedule")
        with mock.patch.object(self, "_inside", True):
            return step(*args, **kwargs)


def _caller() -> str:
    """Return the name of the function that calls one in whose place a method here is called."""
    return sys._getframe(3).f_code.co_name


class Unused:
    """Follows gradients from the backward pass to the update, in all observed steps."""

    def __init__(self, faster: Callable[[Optimizer], Code | None]) -> None:
        self._faster = faster  # returns the line that made an optimizer, with a usual learning rate
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
            kind, faster = type(stepping).__name__, self._faster(stepping)
            self._still[stepping] = Still(kind=kind, source=source.line(), faster=faster)
            if "initial_lr" in stepping.param_groups[0]:
                schedulers = _schedulers(stepping)
                self._still[stepping].scheduler = rewrite.first_name(source.frame(), schedulers, "scheduler")

    def note_updated(self, held: list[torch.Tensor]) -> None:
        """Note that an update has used the gradients."""
        for one in held:
            self._computed.pop(id(one), None)

    def still(self) -> list[Still]:
        """Return the optimizers whose rate was 0 at each update, and is so yet."""
        unmoved = [optimizer for optimizer in self._still if optimizer not in self._moved]
        return [self._still[optimizer] for optimizer in unmoved if all(map(_is_still, optimizer.param_groups))]


def _is_still(group: dict[str, Any]) -> bool:
    rate = group.get("lr")
    return rate is not None and float(rate) <= SMALL * float(group.get("initial_lr", 0))


def _schedulers(optimizer: Optimizer) -> list[LRScheduler]:
    alive = [one for one in gc.get_objects() if issubclass(type(one), LRScheduler)]
    parts = [id(part) for one in alive for part in getattr(one, "_schedulers", ())]
    return [one for one in alive if getattr(one, "optimizer", None) is optimizer and id(one) not in parts]
