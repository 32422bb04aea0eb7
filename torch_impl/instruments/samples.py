"""Samples of a script's datasets: the first ones, and those that are unlike what its steps have met."""

import contextlib
import math
import time
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_flatten_with_path

Taken = dict[str, torch.Tensor]
FIRST_SAMPLES, MOST_BYTES = 1024, 2**22  # of a dataset, to know by them what the other script's data are
MOST_SAMPLES, SECONDS = 2048, 1.0  # in which samples are looked for that are unlike those of the steps
LARGER = 2  # times as large as all numbers of the steps


def first(iterator: Any) -> Taken:
    """Return a batch of the first samples of an iterator's dataset, in its order; nothing if it has none."""
    dataset, taken, start = iterator._dataset, list[Any](), time.monotonic()
    with contextlib.suppress(Exception), torch.random.fork_rng(devices=()):  # of the user's dataset
        size = sum(each.nbytes for each in leaves(iterator._collate_fn([dataset[0]])).values())
        for index in range(min(FIRST_SAMPLES, MOST_BYTES // max(size, 1), len(dataset))):
            taken.append(dataset[index])
            if time.monotonic() - start > SECONDS:
                break
        return leaves(iterator._collate_fn(taken))
    return {}


def unlike(iterator: Any, of_steps: Sequence[Taken]) -> Any:
    """Return a batch of an iterator's dataset with what those of the steps have not met; None if it has none.

    That is the size of the last batch, numbers that are larger, or of another sign, and ids or masks of padding.
    """
    dataset, sampler, start = iterator._dataset, iterator._index_sampler, time.monotonic()
    with contextlib.suppress(Exception), torch.random.fork_rng(devices=()):  # of the user's dataset
        size, seen = sampler.batch_size, {name: _extent([each[name] for each in of_steps]) for name in of_steps[0]}
        rest = 0 if sampler.drop_last else len(sampler.sampler) % size
        rest -= rest > 1 and 2 * rest == size  # as a half may have another reason
        chosen: dict[int, None] = {}
        for index in range(0, len(dataset), -(-len(dataset) // MOST_SAMPLES)):
            sample = leaves(iterator._collate_fn([dataset[index]]))
            if sum(_widens(seen[name], each) for name, each in sample.items()):
                chosen[index] = None
            if time.monotonic() - start > SECONDS:
                break
        indices = [*chosen, *(index for index in range(len(dataset)) if index not in chosen)]
        if chosen or rest:
            return iterator._collate_fn([dataset[index] for index in indices[: rest or size]])
    return None


def _extent(tensors: Sequence[torch.Tensor]) -> list[float]:
    """Return the smallest and the largest number of some tensors."""
    return [min(float(each.min()) for each in tensors), max(float(each.max()) for each in tensors)]


def _widens(extent: list[float], sample: torch.Tensor) -> bool:
    """Return whether a sample has numbers of a kind that lie outside of an extent, which is then made to hold them.

    That is one that is LARGER, and of floats one of another sign, of integers one that is 0 or below, as padding is.
    """
    (least, most), (low, high) = extent, _extent([sample])
    is_float = sample.is_floating_point()
    is_lower = low < least and (low < 0 <= least if is_float else low <= 0)
    is_larger = max(-low, high) > LARGER * max(-least, most, 0 if is_float else 1)
    if (is_lower or is_larger) and math.isfinite(high - low):
        extent[:] = min(low, least), max(high, most)
        return True
    return False


def leaves(batch: Any) -> Taken:
    """Return the tensors of a batch by their names."""
    named = ((name(path), leaf) for path, leaf in tree_flatten_with_path(batch)[0])
    return {own: leaf.clone() for own, leaf in named if isinstance(leaf, torch.Tensor)}


def name(path: Any) -> str:
    """Return the name of a part of a batch: its keys and indices."""
    return ".".join(str(getattr(key, "key", getattr(key, "idx", key))) for key in path)
