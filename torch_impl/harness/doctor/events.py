"""The order of a step's training: backward passes, clipped and cleared gradients, updates, steps of schedulers."""

import sys
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from torch.nn.utils import clip_grad
from torch.optim.lr_scheduler import LRScheduler

from parity.doctor import rewrite
from parity.doctor.evidence import Event, Step
from torch_impl.harness.doctor import source


class Events:
    """Notes them in a step; what is no hook of Training's is patched."""

    def __init__(self, step: Step):
        self.step = step
        self._inside = False  # one scheduler may step others

    def note(self, what: Any) -> None:
        """It happens now. A call that makes several of a kind, as one that clips each device's gradients, is one."""
        statement = rewrite.statement(source.spot())
        event = Event(what=what, source=source.line(), statement=statement.text() if statement else "")
        if self.step.events[-1:] != [event]:
            self.step.events.append(event)

    def patches(self) -> Iterator[Any]:
        """Clipping by what torch's functions call of their own module: a program may hold the functions themselves."""
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
            before, self._inside = self._inside, True
            if not before and sys._getframe(1).f_code.co_name != "_initial_step":  # a new scheduler's own
                self.note("schedule")
            try:
                return step(scheduler, *args, **kwargs)
            finally:
                self._inside = before

        return stepped


def _kinds(kind: type) -> Iterator[type]:
    yield kind
    for below in kind.__subclasses__():
        yield from _kinds(below)
