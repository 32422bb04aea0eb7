"""Bring the calls of Keras's modules into the order of torch's, where a training step calls its model several times.

Calls are numbered as they are made. A step that bootstraps may call its model on the next states before it calls it on
the states themselves, or behind it: that is no difference of the computation. What a module is given tells which of its
calls is which.
"""

from collections.abc import Collection, Mapping

import numpy as np

from parity.core.arrays import Array
from parity.trace import keys
from parity.trace.manifest import Tensors, Trace

INPUT, INNER = "input", ("activation", "input")
SAME = 1e-9  # relative: what two calls are given is the same, but for rounding
Order = Mapping[int, int]  # the numbers of torch's calls by those of Keras's
Orders = Mapping[str, Order]  # by module


class _Reordered(Trace):
    """A trace whose modules' calls have other numbers."""

    def __init__(self, trace: Trace, orders: Orders) -> None:
        files = {name: list(_renamed(listed, orders).values()) for name, listed in trace.manifest.files.items()}
        vars(self).update(vars(trace.replaced(files=files)))
        self._trace, self._orders = trace, orders

    def open(self, run: str, stem: str, replica: int = 0) -> Tensors:
        """Return the tensors of one step. Raises TraceError."""
        tensors = self._trace.open(run, stem, replica)
        names = _renamed(tensors, self._orders)
        return {names[key]: array for key, array in tensors.items()}


def in_torchs_order(reference: Trace, candidate: Trace) -> Trace:
    """Return Keras's trace with its modules' calls in torch's order, if those of the first step tell another one."""
    stem = keys.step_file(0)
    if stem not in reference.stems("high") or stem not in candidate.stems("high"):
        return candidate
    torch, keras = (_calls(trace.open("high", stem)) for trace in (reference, candidate))
    given = {module: _order(torch[module], keras[module]) for module in torch if module in keras}
    by_count: dict[int, Order] = {}
    for module, order in given.items():
        by_count.setdefault(len(torch[module]), order or {})
    if not any(map(_is_another, by_count.values())):
        return candidate
    orders = {}
    for module in keras:
        count = len(keras[module])
        order = given.get(module) or (by_count.get(count) if count == len(torch.get(module, {})) else None)
        if order and _is_another(order):
            orders[module] = order
    return _Reordered(candidate, orders)


def _calls(tensors: Tensors) -> dict[str, dict[int, Array | None]]:
    """Return by module what each of several calls is given, by its number; None if that is not recorded."""
    calls: dict[str, dict[int, Array | None]] = {}
    for key, array in tensors.items():
        kind, name = keys.split(key)
        if kind in INNER and keys.plain(name) not in keys.MODEL_INPUTS and "@" not in name:
            of_module = calls.setdefault(keys.plain(name), {})
            of_module[keys.number(name)] = array if kind == INPUT else of_module.get(keys.number(name))
    return {module: given for module, given in calls.items() if len(given) > 1}


def _order(torch: Mapping[int, Array | None], keras: Mapping[int, Array | None]) -> Order | None:
    """Return which calls are given the same; None if not all of them tell it."""
    if torch.keys() != keras.keys():
        return None
    order: dict[int, int] = {}
    for number, given in keras.items():
        same = [own for own, array in torch.items() if own not in order.values() and _are_same(array, given)]
        if not same:
            return None
        order[number] = number if number in same else same[0]
    return order


def _are_same(torch: Array | None, keras: Array | None) -> bool:
    if torch is None or keras is None or torch.shape != keras.shape:
        return False
    return bool(np.allclose(torch, keras, rtol=SAME, atol=0.0, equal_nan=True))


def _is_another(order: Order) -> bool:
    return any(number != own for number, own in order.items())


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
