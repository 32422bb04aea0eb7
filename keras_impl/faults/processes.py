"""Faults of processes: a rank that raises, hangs or exits."""

import os
import time
from collections.abc import Callable, Iterator

from keras_impl.faults.mutate import Patches, replaced
from keras_impl.instruments import devices
from parity.data.batches import Dataset


def _in_rank_1(misbehave: Callable[[], None]) -> Patches:
    """Misbehave in rank 1 when it draws its first batch."""

    def change(steps: Callable[[Dataset], Iterator]) -> Callable[[Dataset], Iterator]:
        def drawn(self: Dataset) -> Iterator:
            if devices.rank().number == 1:
                misbehave()
            yield from steps(self)

        return drawn

    return replaced(Dataset, "steps", change)


def _raise() -> None:
    raise RuntimeError("planted in rank 1")


FAULTS: dict[str, Patches] = {
    "rank.raises": _in_rank_1(_raise),
    "rank.hangs": _in_rank_1(lambda: time.sleep(1e6)),
    "rank.exits": _in_rank_1(lambda: os._exit(1)),
}
