"""Planting faults in a run of one side: the tools, and the faults in what both sides share.

Each of the two files in a side's package `faults` has a table FAULTS, by name, and `model` another one, of those that
are planted in float32 alone. A fault is a small change to what a run calls, undone when the run is over.
"""

import importlib
import inspect
import os
import time
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from types import ModuleType
from typing import Any
from unittest import mock

import numpy as np

from parity.config import devices, schema
from parity.config.devices import Indices
from parity.core.arrays import Floats
from parity.core.patches import applied, around, wrapping
from parity.data.batches import Batch, Dataset

Patches = Callable[[], list[AbstractContextManager[Any]]]
PARTS = ("model", "training")


@contextmanager
def planted(package: str, faults: str, at: str) -> Iterator[None]:
    """Plant a side's faults, whose names are joined by "+", within the block, as far as they are for this precision."""
    # Not before there are some: their modules import every strategy's.
    parts = [importlib.import_module(f"{package}.faults.{part}") for part in (PARTS if faults else ())]
    everywhere: ChainMap[str, Patches] = ChainMap(SHARED, *(part.FAULTS for part in parts))
    in_float32: dict[str, Patches] = parts[0].FAULTS_IN_FLOAT32 if parts else {}

    def patches() -> Iterator[AbstractContextManager[Any]]:
        for name in filter(None, faults.split("+")):
            if name not in in_float32:
                yield from everywhere[name]()
            elif at == "float32":
                yield from in_float32[name]()

    with applied(patches()):
        yield


def wrapped(owner: Any, name: str, function: Callable[..., Any]) -> Patches:
    """Call `function(original, *args, **kwargs)` in place of a function; it keeps its signature, which Keras reads."""

    def patches() -> list[AbstractContextManager[Any]]:
        original = getattr(owner, name)
        called = wrapping(function, original)
        if name == "__init__":  # Keras reads its arguments, and does not follow __wrapped__ there
            vars(called)["__signature__"] = inspect.signature(original)
        return [mock.patch.object(owner, name, called)]

    return patches


def replaced(owner: Any, name: str, value: Any) -> Patches:
    """Put a value, or another function, in the place of an attribute."""
    return lambda: [mock.patch.object(owner, name, value)]


def constant(kind: type, name: str, value: Any) -> Patches:
    """Give the named argument another value whenever an instance of `kind` is made."""

    def make(original: Callable[..., None], *args: Any, **kwargs: Any) -> None:
        bound = inspect.signature(original).bind_partial(*args, **kwargs)
        bound.arguments.pop(name, None)
        original(*bound.args, **bound.kwargs, **{name: value})

    return wrapped(kind, "__init__", make)


def loaded(weights: ModuleType, ending: str, change: Callable[[Floats], Floats]) -> Patches:
    """Load into the model what `change` makes of the initial values of parameters whose names have this ending."""

    def load(original: Callable[..., None], model: Any, values: Mapping[str, Floats]) -> None:
        changed = {name: np.ascontiguousarray(change(value)) for name, value in values.items() if name.endswith(ending)}
        original(model, {**values, **changed})

    return lambda: [around(weights, "load", load)]


def together(*several: Patches) -> Patches:
    return lambda: [patch for patches in several for patch in patches()]


def misbehaving(in_rank_1: Callable[[Callable[[], None]], Patches]) -> dict[str, Patches]:
    """Return the faults of a process that does not train; `in_rank_1` lets rank 1 call a function."""

    def fail() -> None:
        raise RuntimeError("planted in rank 1")

    return {
        "rank.raises": in_rank_1(fail),
        "rank.hangs": in_rank_1(partial(time.sleep, 1e6)),
        "rank.exits": in_rank_1(partial(os._exit, 1)),
    }


def _mean_of_means(batch: Callable[..., Batch], data: Dataset, *args: Any, **kwargs: Any) -> Batch:
    """Give every part of a batch the same share, whatever its size."""
    return batch(data, *args, **kwargs)._replace(share=1 / (data.case.replicas * data.case.accumulate))


def _rotated(split: Callable[..., list[Indices]], batch: Any, case: schema.Case) -> list[Indices]:
    """Give replica 1 the samples of replica 0."""
    parts = split(batch, case)
    return [parts[0], parts[0][: len(parts[1])], *parts[2:]] if len(parts) > 1 else parts


SHARED: dict[str, Patches] = {
    "batch.uneven": wrapped(Dataset, "batch", _mean_of_means),
    "accumulation.normalisation": wrapped(Dataset, "batch", lambda batch, data, indices, whole=0: batch(data, indices)),
    "shard.rotated": wrapped(devices, "split", _rotated),
}
