"""Bring the calls of modules into one order, in both recordings of a step.

Calls are numbered as they are made, where a step calls its model several times. One that bootstraps may call its model
on the next states before it calls it on the states themselves, or behind it: that is no difference of the computation.
Nor is it that only torch's calls are seen which are not differentiated, or that a GAN's critic is given real samples
and made ones in two calls or in one. What a module is given tells which of its calls is which.
"""

import itertools
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from msgspec.structs import replace

from parity.core.arrays import Array
from parity.trace import keys
from parity.trace.manifest import Tensors, Trace
from parity.trace.recorder import FORWARD

RUN = keys.RUNS[1]  # the float64 run, in which calls are compared
SAME = 1e-7  # of the largest: what two calls are given is the same, but for what float32 hides
Order = Mapping[int, int]  # the numbers of the other side's calls by the own ones; further own ones come last
Orders = Mapping[str, Order]  # by module
OfCalls = dict[str, dict[int, Array]]  # what a module is given and returns, by kind, by the number of its call
Calls = dict[str, OfCalls]  # by module


def with_calls_alike(reference: Trace, candidate: Trace) -> tuple[Trace, Trace]:
    """Return both traces with torch's calls of modules in Keras's order, in each step in which they tell another one.

    Where one side calls a module with several batches in turn, and the other with all of them, its calls are joined.
    """
    reference = _in_order(reference, candidate)
    return reference, _in_order(candidate, reference, joins_only=True)


def _in_order(trace: Trace, other: Trace, joins_only: bool = False) -> Trace:
    steps = set(trace.stems(RUN)).intersection(other.stems(RUN))
    orders = {stem: _orders(_calls(trace.open(RUN, stem)), _calls(other.open(RUN, stem)), joins_only) for stem in steps}
    if not any(orders.values()):
        return trace
    listed, training = trace.manifest.files, trace.manifest.training
    files = {name: list(_renamed(held, orders.get(name.rpartition("/")[2], {}))) for name, held in listed.items()}
    first = _renamed(listed.get(f"{RUN}/rank-0/{keys.step_file(0)}", ()), orders.get(keys.step_file(0), {}))
    turns = [
        replace(turn, calls=[name for name, own in first.items() if not set(turn.calls).isdisjoint(own)])
        for turn in training.turns
    ]

    def reordered(tensors: Tensors, run: str, stem: str, replica: int) -> Tensors:
        parts = {name: [tensors[key] for key in own] for name, own in _renamed(tensors, orders.get(stem, {})).items()}
        return {name: each[0] if len(each) == 1 else np.concatenate(each) for name, each in parts.items()}

    return trace.changed(reordered, files=files, training=replace(training, turns=turns))


def _orders(ours: Calls, theirs: Calls, joins_only: bool) -> Orders:
    """Return the order of each module whose calls in a step have another one on the other side."""
    modules = [module for module in ours if module in theirs]
    shared = {module: each for module in modules if (each := _shared(ours[module], theirs[module]))}
    sizes = {
        module: tuple(tuple(map(_size, side.values())) for side in sides) for module, (_, *sides) in shared.items()
    }
    by_sizes: dict[Any, Order] = {}  # of modules that are called alike, what those tell whose inputs are recorded
    for module, (kind, *sides) in shared.items():
        order = _told(*sides) if kind == "input" else {}
        if len(order) > len(by_sizes.get(sizes[module], {})):
            by_sizes[sizes[module]] = order
    orders = {module: _order(by_sizes.get(sizes[module], {}), *sides) for module, (_, *sides) in shared.items()}
    return {
        module: order
        for module, order in orders.items()
        if any(number != own for own, number in order.items())
        and (not joins_only or len(set(order.values())) < len(order))
    }


def _shared(ours: OfCalls, theirs: OfCalls) -> tuple[str, dict[int, Array], dict[int, Array]] | None:
    """Return what each call of a module is given, by its number, or returns where one side does not record the former.

    The latter may be several tensors of one call, and tells no order. None if it is called once, or if a call is given,
    or returns, several tensors beside one: their numbers are none of calls.
    """
    numbers = [set(map(frozenset, side.values())) for side in (ours, theirs)]
    if any(len(each) > 1 for each in numbers) or all(len(each) == 1 for own in numbers for each in own):
        return None
    return next(
        ((kind, ours[kind], theirs[kind]) for kind in ("input", "activation") if kind in ours and kind in theirs), None
    )


def _calls(tensors: Tensors) -> Calls:
    """Return by module what each of its calls is given and returns, by its number."""
    calls: Calls = {}
    for key, array in tensors.items():
        kind, name = keys.split(key)
        if kind in FORWARD and keys.plain(name) not in keys.MODEL_INPUTS and "@" not in name:
            calls.setdefault(keys.plain(name), {}).setdefault(kind, {})[keys.number(name)] = array
    return calls


def _size(given: Array) -> int:
    return len(given) if given.ndim else 0


def _told(ours: Mapping[int, Array], theirs: Mapping[int, Array]) -> Order:
    """Return which of a side's calls is given the same as which of the other's, as far as these tell it.

    Several may together be given what one of the other's is: they follow each other as there.
    """
    order: dict[int, int] = {}
    for number, given in theirs.items():
        same = [own for own, array in ours.items() if own not in order and _are_same(array, given)]
        same = [number] if number in same else same[:1] or _parts(ours, given, order)
        order |= dict.fromkeys(same, number)
    return order


def _order(told: Order, ours: Collection[int], theirs: Collection[int]) -> Order:
    """Return the order of all calls: those of which nothing tells it correspond in turn, and further ones come last.

    Where it is told of none, they stay in their own.
    """
    if not told:
        return {number: number for number in ours}
    left = (number for number in sorted(theirs) if number not in told.values())
    numbers = itertools.chain(left, itertools.count(1 + max(theirs)))
    return {**told, **{own: next(numbers) for own in sorted(ours) if own not in told}}


def _parts(ours: Mapping[int, Array], whole: Array, taken: Collection[int]) -> list[int]:
    """Return the calls that are given parts of a batch, in their order in it; none if no part tells that they are."""
    parts: list[int] = []
    place, are_told = 0, False
    while place < _size(whole):
        rest = whole[place:]
        left = [own for own, array in ours.items() if own not in (*taken, *parts) and 0 < _size(array) <= len(rest)]
        same = [own for own in left if _are_same(ours[own], rest[: _size(ours[own])])]
        are_told |= bool(same)
        if not left:
            return []
        parts += (same or left)[:1]
        place += _size(ours[parts[-1]])
    return parts if are_told else []


def _are_same(ours: Array, theirs: Array) -> bool:
    if ours.shape != theirs.shape:
        return False
    atol = SAME * float(np.abs(theirs).max(initial=0.0)) if theirs.dtype.kind == "f" else 0.0
    return bool(np.allclose(ours, theirs, rtol=0.0, atol=atol, equal_nan=True))


def _renamed(listed: Collection[str], orders: Orders) -> dict[str, list[str]]:
    """Return the keys by those with other numbers; those of a module that is called less often stay."""
    parts = {key: keys.split(key) for key in listed}
    called: dict[str, set[int]] = {}
    for kind, name in parts.values():
        if kind in FORWARD:
            called.setdefault(keys.plain(name), set()).add(keys.number(name))

    def order_of(kind: str, name: str) -> Order:
        order = orders.get(keys.plain(name), {}) if kind in FORWARD else {}
        return order if set(order) == called.get(keys.plain(name), set()) else {}

    renamed: dict[str, dict[int, str]] = {}  # the keys that are joined, by their places
    for key, (kind, name) in parts.items():
        order, own = order_of(kind, name), keys.number(name)
        new = keys.key(kind, keys.numbered(name.partition("#")[0], order[own])) if order else key
        renamed.setdefault(new, {})[list(order).index(own) if order else 0] = key
    return {new: [each for _, each in sorted(joined.items())] for new, joined in renamed.items()}
