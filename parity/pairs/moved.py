"""Which buffers of torch's a training changes although Keras has no counterpart of them.

The rehearsal sees two passes; a buffer that begins to move later is known when the training was recorded.
"""

import copy
import itertools
from collections.abc import Mapping as Named
from collections.abc import Sequence

import msgspec
import numpy as np

from parity.core.arrays import Array
from parity.trace import keys
from parity.trace.manifest import Trace
from parity.trace.mapping import Mapping, counts

State = Named[str, Array]


def changing(states: Sequence[State]) -> list[str]:
    """Return the names of the arrays that are not in every state what they are in the first."""
    return [name for name, array in states[0].items() if any(not _same(array, later[name]) for later in states[1:])]


def counting(states: Sequence[State]) -> list[str]:
    """Return the names of those that only count the passes, of which there is one between two states."""
    found = ((name, [state[name] for state in states]) for name in changing(states))
    return [name for name, values in found if is_counter(values, [1] * (len(values) - 1))]


def is_counter(values: Sequence[Array], passes: Sequence[int]) -> bool:
    """Return whether whole numbers grow by one and the same number with every pass, whatever the data.

    `passes`: how many there were between each two successive values.
    """
    if any(value.dtype.kind not in "iu" for value in values):
        return False
    steps = zip(values[1:], values, passes, strict=False)
    grown = np.concatenate([np.ravel(now.astype(np.float64) - before) / count for now, before, count in steps])
    return bool(grown.size) and bool((grown == grown[0]).all())


def known(mapping: Mapping, reference: Trace) -> Mapping:
    """Return the mapping with those of its constants that torch's trace shows to change, and that do not count."""
    moved = [name for name, values in _buffers(reference, set(mapping.constants)).items() if _is_moved(values)]
    if not moved:
        return mapping
    counted = set(map(counts, moved))
    return msgspec.structs.replace(
        mapping,
        constants=[name for name in mapping.constants if name not in moved],
        changing=[*mapping.changing, *moved],
        assumptions=[sentence for sentence in mapping.assumptions if sentence not in counted],
    )


def told(candidate: Trace, mapping: Mapping) -> Trace:
    """Return Keras's trace with another mapping."""
    found = copy.copy(candidate)
    found.manifest = msgspec.structs.replace(candidate.manifest, mapping=mapping)
    return found


def _is_moved(values: Named[int, Array]) -> bool:
    """Whether what a buffer was after so many passes has changed, and not only counted them."""
    arrays = list(values.values())
    if all(_same(arrays[0], later) for later in arrays[1:]):
        return False
    return not is_counter(arrays, [now - before for before, now in itertools.pairwise(values)])


def _buffers(trace: Trace, wanted: set[str]) -> dict[str, dict[int, Array]]:
    """The recorded values of some buffers, by name, and by how many passes in training there had been."""
    found: dict[str, dict[int, Array]] = {}
    for stem in trace.stems("high") if wanted else ():
        step = keys.step_of(stem)
        passes = 0 if step is None else step + 1
        for key, array in trace.open("high", stem).items():
            kind, name = keys.split(key)
            if kind == "buffer" and name in wanted:
                found.setdefault(name, {})[passes] = array
    return found


def _same(one: Array, other: Array) -> bool:
    return np.array_equal(one, other, equal_nan=one.dtype.kind in "fc")
