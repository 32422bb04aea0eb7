"""Bring the calls of torch's modules into the order of Keras's, and torch's masks into that in which Keras draws them.

Calls are numbered as they are made, where a step calls its model several times. One that bootstraps may call its model
on the next states before it calls it on the states themselves, or behind it: that is no difference of the computation.
Nor is it that only torch's calls are seen which are not differentiated. What a module is given tells which of its calls
is which.
"""

import itertools
from collections.abc import Collection, Mapping

import numpy as np

from parity.core.arrays import Array
from parity.core.groups import by_key
from parity.runtime.survey import Rehearsal
from parity.trace import keys
from parity.trace.manifest import Tensors, Trace
from parity.trace.mapping import Matching

INPUT, INNER = "input", ("activation", "input")
SAME = 1e-9  # relative: what two calls are given is the same, but for rounding
Order = Mapping[int, int]  # the numbers of Keras's calls by those of torch's; further ones of torch's come last
Orders = Mapping[str, Order]  # by module
Calls = dict[str, dict[int, Array | None]]  # what a module is given, by the number of its call


class _Reordered(Trace):
    """A trace whose modules' calls have other numbers."""

    def __init__(self, trace: Trace, orders: Mapping[str, Orders]) -> None:
        files = {
            name: list(_renamed(listed, orders.get(name.rpartition("/")[2], {})).values())
            for name, listed in trace.manifest.files.items()
        }
        vars(self).update(vars(trace.replaced(files=files)))
        self._trace, self._orders = trace, orders

    def open(self, run: str, stem: str, replica: int = 0) -> Tensors:
        """Return the tensors of one step. Raises TraceError."""
        tensors = self._trace.open(run, stem, replica)
        names = _renamed(tensors, self._orders.get(stem, {}))
        return {names[key]: array for key, array in tensors.items()}


def in_kerass_order(reference: Trace, candidate: Trace) -> Trace:
    """Return torch's trace with its modules' calls in Keras's order, in each step in which they tell another one."""
    steps = set(reference.stems("high")).intersection(candidate.stems("high"))
    orders = {stem: _orders(*(_calls(trace.open("high", stem)) for trace in (reference, candidate))) for stem in steps}
    return _Reordered(reference, orders) if any(orders.values()) else reference


def _orders(torch: Calls, keras: Calls) -> Orders:
    """Return the order of each module whose calls in a step have another one in Keras."""
    shared = [module for module in torch if module in keras and len(torch[module]) > 1]
    given = {module: _order(torch[module], keras[module]) for module in shared}
    counts = {module: (len(torch[module]), len(keras[module])) for module in shared}
    by_counts: dict[tuple[int, int], Order] = {}
    for module, order in given.items():
        by_counts.setdefault(counts[module], order or {})
    orders = {module: given[module] or by_counts[counts[module]] for module in shared}
    return {module: order for module, order in orders.items() if any(number != own for number, own in order.items())}


def draws(matching: Matching, torch: Rehearsal, keras: Rehearsal) -> dict[int, list[int]]:
    """Return torch's masks in the order in which Keras's model draws them, by their size, where that is another order.

    Which of torch's masks is which of Keras's is told by the next tensor that corresponds: two towers of a model may be
    called in any order. Numbers count the masks of one size in a step.
    """
    names = {match.keras: match.torch for match in matching.matches if not match.torch.startswith(keys.MODEL)}
    orders = {}
    for size in dict.fromkeys(torch.masks):
        ours = _next_tensors(torch, {name: name for name in names.values()}, size)
        theirs = _next_tensors(keras, names, size)
        if ours != theirs and sorted(ours) == sorted(theirs):
            numbers = by_key((name, number) for number, name in enumerate(ours))
            orders[size] = [numbers[name].pop(0) for name in theirs]
    return orders


def _next_tensors(rehearsal: Rehearsal, names: Mapping[str, str], size: int) -> list[str]:
    """Return for each mask of a size the tensor, of those that have a name here, that is returned next; "" if none."""
    known = [(name, rehearsal.behind(key, size) or 0) for key in rehearsal.drawn if (name := names.get(key))]
    masks = range(rehearsal.masks.count(size))
    return [next((name for name, before in known if before > number), "") for number in masks]


def _calls(tensors: Tensors) -> Calls:
    """Return by module what each of its calls is given, by its number; None if that is not recorded."""
    calls: Calls = {}
    for key, array in tensors.items():
        kind, name = keys.split(key)
        if kind in INNER and keys.plain(name) not in keys.MODEL_INPUTS and "@" not in name:
            of_module = calls.setdefault(keys.plain(name), {})
            of_module[keys.number(name)] = array if kind == INPUT else of_module.get(keys.number(name))
    return calls


def _order(torch: Mapping[int, Array | None], keras: Mapping[int, Array | None]) -> Order | None:
    """Return which of torch's calls is given the same as each of Keras's; None if not all of them tell it."""
    order: dict[int, int] = {}
    for number, given in keras.items():
        same = [own for own, array in torch.items() if own not in order and _are_same(array, given)]
        if not same:
            return None
        order[number if number in same else same[0]] = number
    further = itertools.count(len(keras))
    return {own: order[own] if own in order else next(further) for own in torch}


def _are_same(torch: Array | None, keras: Array | None) -> bool:
    if torch is None or keras is None or torch.shape != keras.shape:
        return False
    return bool(np.allclose(torch, keras, rtol=SAME, atol=0.0, equal_nan=True))


def _renamed(listed: Collection[str], orders: Orders) -> dict[str, str]:
    """Return the keys with other numbers, by the own ones; those of a module that is called less often stay."""
    parts = {key: keys.split(key) for key in listed}
    called: dict[str, set[int]] = {}
    for kind, name in parts.values():
        if kind in INNER:
            called.setdefault(keys.plain(name), set()).add(keys.number(name))

    def renamed(key: str, kind: str, name: str) -> str:
        order = orders.get(keys.plain(name), {}) if kind in INNER else {}
        is_whole = set(order) == called.get(keys.plain(name), set())
        return keys.key(kind, name.partition("#")[0], order[keys.number(name)]) if order and is_whole else key

    return {key: renamed(key, *part) for key, part in parts.items()}
