"""Faults of processes: a rank that raises, hangs or exits."""

import os
import time
from collections.abc import Callable
from typing import Any

import torch.distributed as dist

from torch_impl.faults.mutate import Patches, replaced, together
from torch_impl.strategies import all_reduce, ddp, hybrid, pipeline, send_recv, tensor_parallel


def _in_rank_1(misbehave: Callable[[], None]) -> Patches:
    """Misbehave in rank 1 when it begins to train."""

    def change(train: Callable[..., None]) -> Callable[..., None]:
        def changed(*args: Any) -> None:
            if dist.get_rank() == 1:
                misbehave()
            train(*args)

        return changed

    strategies = all_reduce, ddp, hybrid, pipeline, send_recv, tensor_parallel
    return together(*(replaced(strategy, "train", change) for strategy in strategies))


def _raise() -> None:
    raise RuntimeError("planted in rank 1")


FAULTS: dict[str, Patches] = {
    "rank.raises": _in_rank_1(_raise),
    "rank.hangs": _in_rank_1(lambda: time.sleep(1e6)),
    "rank.exits": _in_rank_1(lambda: os._exit(1)),
}
