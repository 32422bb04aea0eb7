"""Tensors that one side of a pair happens not to record: no difference of the computation, whose result is compared.

A layer that is called in a graph, or twice where the other framework's is called once and a function does the rest,
records other tensors than its counterpart. What stands before and behind is judged; what is on one side only is told.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from parity.pairs.activations.counterparts import is_output
from parity.pairs.comparable import comparable
from parity.pairs.schema import Pair
from parity.trace import keys
from parity.trace.manifest import Tensors, Trace

INNER = ("activation", "input")
LOW, HIGH = keys.RUNS[:2]


class Shown(NamedTuple):
    """Both traces without what has no counterpart. `alone`: by side the names of modules' tensors that it alone has.

    `told`: in sentences, what else is not compared.
    """

    reference: Trace
    candidate: Trace
    alone: dict[str, list[str]]
    told: list[str]


def shown(reference: Trace, candidate: Trace, pair: Pair) -> Shown:
    """Hide the modules' tensors, and slots of the user's own optimizers, that only one of two traces of a pair has."""
    sides = reference, candidate
    is_comparable = comparable(candidate.manifest.mapping, candidate.manifest.matching)
    slots = [_slots(trace) if _has_own_optimizer(pair) else set[str]() for trace in sides]
    hidden: dict[str, set[str]] = {}
    alone: dict[str, dict[str, None]] = {trace.backend: {} for trace in sides}
    for stem in reference.stems(HIGH):
        held = [[set(_inner(trace, run, stem)) for run in (HIGH, LOW)] for trace in sides]
        held[0] = [set(filter(is_comparable, found)) for found in held[0]]
        every = [found for side in held for found in side]
        hidden[stem] = every[0].union(*every) - every[0].intersection(*every)
        for key in sorted(hidden[stem]):
            side = sides[not any(key in found for found in held[0])]
            alone[side.backend].setdefault(keys.split(key)[1])
        hidden[stem] |= {
            key for trace in sides for key in _listed(trace, HIGH, stem) if _slot(key) in slots[0] ^ slots[1]
        }
    told = [
        f"{', '.join(sorted(own - other))} of {trace.backend}'s optimizer has no counterpart: every update is compared"
        for trace, own, other in zip(sides, slots, slots[::-1], strict=True)
        if own - other
    ]
    if any(hidden.values()):
        sides = _Hiding(reference.folder, hidden), _Hiding(candidate.folder, hidden)
    return Shown(*sides, {side: list(names) for side, names in alone.items() if names}, told)


class _Hiding(Trace):
    """A trace without some tensors. `hidden`: their keys, by the stem of the step."""

    def __init__(self, folder: Path, hidden: dict[str, set[str]]) -> None:
        super().__init__(folder)
        self.hidden = hidden

    def open(self, run: str, stem: str, replica: int = 0) -> Tensors:
        """The tensors of one step that are shown. Raises TraceError."""
        hidden = self.hidden.get(stem, set())
        return {key: array for key, array in super().open(run, stem, replica).items() if key not in hidden}


def _listed(trace: Trace, run: str, stem: str) -> list[str]:
    return trace.manifest.files.get(f"{run}/rank-0/{stem}", [])


def _inner(trace: Trace, run: str, stem: str) -> Iterator[str]:
    """The keys of what modules were given and returned."""
    for key in _listed(trace, run, stem):
        kind, name = keys.split(key)
        if kind in INNER and not is_output(name) and name.partition("#")[0] not in keys.MODEL_INPUTS:
            yield key


def _has_own_optimizer(pair: Pair) -> bool:
    return pair.train is not None and bool(pair.train.torch_optimizer or pair.train.keras_optimizer)


def _slots(trace: Trace) -> set[str]:
    """What the optimizer holds of any parameter."""
    return {slot for stem in trace.stems(HIGH) for key in _listed(trace, HIGH, stem) if (slot := _slot(key))}


def _slot(key: str) -> str:
    kind, name = keys.split(key)
    return name.rpartition(".")[2] if kind == "optimizer_state" else ""
