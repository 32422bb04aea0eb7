"""The times of a step's parts, of which the backends report when each begins and ends, and what spans of time cover."""

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

PARTS = ("forward", "loss", "backward", "update", "copies")


class Time(msgspec.Struct, kw_only=True):
    """The time of a step and its parts: medians in seconds over `steps` steps after warming up.

    The device is waited for at the boundary of each part. What a side cannot measure is None.
    """

    device: str  # "cpu", or the name of the hardware
    steps: int
    step: float
    forward: float | None = None
    loss: float | None = None
    backward: float | None = None
    update: float | None = None
    copies: float | None = None
    # How long something is sent or waited for, which may be at the same time as other parts.
    communication: float | None = None


class Clock:
    """Times steps and their parts. A part within another part counts for the outer one only.

    `wait`: returns when the devices have finished the work that they were given.
    """

    def __init__(self, wait: Callable[[], None]) -> None:
        self.wait = wait
        self._steps: list[dict[str, float]] = []
        self._open = ""
        self._began = 0.0
        self._forward_ended: float | None = None

    @contextmanager
    def step(self) -> Iterator[None]:
        """Time one step."""
        self._steps.append(defaultdict(float))
        self._open, self._forward_ended = "", None
        start = self._now()
        yield
        self._steps[-1]["step"] = self._now() - start

    def result(self, device: str) -> list[Time]:
        """Return the medians over all complete steps, in a list of one; an empty list if no step came to an end.

        A part that no step had is None.
        """
        steps = [step for step in self._steps if "step" in step]
        parts = {part for step in steps for part in step}
        medians = {part: statistics.median(step.get(part, 0.0) for step in steps) for part in parts}
        return [Time(device=device, steps=len(steps), **medians)] if steps else []

    def timed(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function wrapped so that it is timed as a part of the step."""

        def timed(*args: Any, **kwargs: Any) -> Any:
            self.begin(part)
            try:
                return function(*args, **kwargs)
            finally:
                self.end(part)

        return timed

    def begin(self, part: str) -> None:
        """Note that a part begins: forward, backward, update or copies."""
        if self._open:
            return
        self._open, self._began = part, self._now()
        if part == "backward" and self._forward_ended is not None:
            # The loss is computed between the model's output and the backward pass.
            self._steps[-1]["loss"] += self._began - self._forward_ended
            self._forward_ended = None

    def end(self, part: str) -> None:
        """Note that a part ends."""
        if self._open != part:
            return
        self._open, now = "", self._now()
        self._steps[-1][part] += now - self._began
        if part == "forward":
            self._forward_ended = now
        elif part == "copies" and self._forward_ended is not None:
            self._forward_ended += now - self._began  # so that copies do not count as a part of the loss

    def add(self, part: str, seconds: float) -> None:
        """Note that the last step spent some time on something beside its parts or within them."""
        self._steps[-1][part] += seconds

    def _now(self) -> float:
        self.wait()
        return time.perf_counter()


def covered(spans: Iterable[tuple[float, float]]) -> float:
    """Return how long at least one of the spans lasts, each given by its start and its end."""
    total, until = 0.0, float("-inf")
    for start, end in sorted(spans):
        total += max(end - max(start, until), 0.0)
        until = max(until, end)
    return total
