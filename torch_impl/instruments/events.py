"""The order of events in a training step: backward passes, clipping and clearing of gradients, updates, schedules."""

import sys
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from torch.nn.utils import clip_grad
from torch.optim.lr_scheduler import LRScheduler

from parity.doctor import rewrite
from parity.doctor.evidence import Step
from parity.doctor.evidence.training import Event
from torch_impl.instruments import source


class Events:
    """Records events in a step; those for which Training has no hook are patched here."""

    def __init__(self, step: Step):
        self.step = step
        self.scaled = False  # whether the gradients are those of a loss that a GradScaler has scaled
        self._inside = False  # a scheduler may step others, which is one event

    def note(self, what: Any) -> None:
        """Record that an event happens now.

        Equal events in a row from one line are one entry, as when gradients are clipped device by device.
        """
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
        """Yield patches of clipping and of learning-rate schedulers.

        Clipping is patched in the helpers that torch's functions call, because a program may have imported the
        functions themselves.
        """
        for name in ("_clip_grads_with_norm_", "_group_tensors_by_device_and_dtype"):
            yield mock.patch.object(clip_grad, name, self._clipping(getattr(clip_grad, name)))
        for kind in _kinds(LRScheduler):
            if "step" in vars(kind):
                yield mock.patch.object(kind, "step", self._scheduling(kind.step))

    def _clipping(self, clip: Callable[..., Any]) -> Callable[..., Any]:
        def clipped(*args: Any, **kwargs: Any) -> Any:
            if sys._getframe(1).f_code.co_name in ("clip_grad_norm_", "clip_grad_value_"):
                self.note("clip")
            return clip(*args, **kwargs)

        return clipped

    def _scheduling(self, step: Callable[..., Any]) -> Callable[..., Any]:
        def stepped(scheduler: LRScheduler, *args: Any, **kwargs: Any) -> Any:
            was_inside, self._inside = self._inside, True
            # A new scheduler steps once by itself, which is no event of the program's.
            if not was_inside and sys._getframe(1).f_code.co_name != "_initial_step":
                self.note("schedule")
            try:
                return step(scheduler, *args, **kwargs)
            finally:
                self._inside = was_inside

        return stepped


def _kinds(kind: type) -> Iterator[type]:
    yield kind
    for subclass in kind.__subclasses__():
        yield from _kinds(subclass)
