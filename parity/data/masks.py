"""Which dropout mask is drawn next, as both sides count them: by the step, and by the calls within it."""

import threading
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Self

from parity.config.pair import SEED, Pair
from parity.core import random, script
from parity.data.pairs import Rows

Context = Callable[[], AbstractContextManager[None]]


class _Own(threading.local):
    """What is counted in each thread, as each replica of tf.distribute has one of its own.

    `rows`: those of the batch that are being run, where these are not all. `calls`: the draws of this step by caller.
    """

    def __init__(self) -> None:
        self.rows: Rows | None = None
        self.calls: Counter[Hashable] = Counter()


class Draws:
    """Counts the draws of a run's masks.

    Attributes:
        repeats: the masks that repeat an earlier one.
        is_replayed: whether masks are drawn that were drawn before.
    """

    def __init__(self, seed: int) -> None:
        self.seed, self.step = seed, 0
        self._own, self._orders = _Own(), dict[Hashable, list[int]]()
        self.repeats, self.is_replayed = random.Repeats(), False

    def holding(self, pair: Pair) -> Self:
        """Draw new masks where a seed would repeat earlier ones, if the pair accepts that it does."""
        self.repeats.are_held = pair.accepts(SEED)
        return self

    def in_order(self, orders: Mapping[int, list[int]]) -> Self:
        """Draw the masks of each size in another order: those of these numbers."""
        self._orders = {random.mask_name(size, random.UNIFORM): numbers for size, numbers in orders.items()}
        return self

    def on_step(self) -> None:
        """Move on to the next step, which draws other masks; called after each update."""
        self.step += 1
        self.restart()

    def restart(self) -> None:
        """Draw the masks of this step again; called before its forward pass is repeated."""
        self._own.calls.clear()

    def begin_part(self, rows: Rows | None) -> None:
        """Draw, from now on, the rows that a part of the batch has in the masks of the whole; None stands for all."""
        self._own.rows = rows
        self.restart()

    def replaying(self) -> AbstractContextManager[None]:
        """Return a context in which is drawn again what is drawn from now on."""
        return self._replayed(self._own.calls.copy())

    def repeated(self, drawn: Context) -> Context:
        """Return contexts in each of which is drawn again what is drawn from now on.

        `drawn`: a context in which a model draws.
        """
        before = self._own.calls.copy()

        @contextmanager
        def again() -> Iterator[None]:
            with drawn(), self._replayed(before.copy()):
                yield

        return again

    @contextmanager
    def _replayed(self, calls_before: Counter[Hashable]) -> Iterator[None]:
        calls_so_far, self._own.calls, self.is_replayed = self._own.calls, calls_before, True
        try:
            yield
        finally:
            self._own.calls, self.is_replayed = calls_so_far, False

    def _next(self, caller: Hashable) -> tuple[int, int]:
        """Return the step, and the number of the caller's draw within it; a script that begins anew is in no step."""
        number = self._own.calls[caller]
        self._own.calls[caller] += not script.is_building()
        order = self._orders.get(caller, [0])  # of one call of the model, and so of each
        calls, own = divmod(number, len(order))
        return self.step, calls * len(order) + order[own]

    def _extent(self, size: int, where: str) -> tuple[int, int]:
        """Return where a mask of `size` elements begins in that of the whole batch, and the size of that one."""
        return (0, size) if self._own.rows is None else self._own.rows.within(size, where)


class Drawing:
    """The masks that the running call of a model draws, so that its parts can be called again with the same."""

    def __init__(self) -> None:
        self._running: tuple[Draws, Context] | None = None

    @contextmanager
    def by(self, masks: Draws, drawn: Context) -> Iterator[None]:
        """Let the model draw from `masks` within the block; `drawn`: the context in which it does."""
        self._running = masks, drawn
        try:
            with drawn():
                yield
        finally:
            self._running = None

    def again(self) -> Context:
        """Return contexts in each of which is drawn again what the running call draws from now on."""
        return self._running[0].repeated(self._running[1]) if self._running else nullcontext
