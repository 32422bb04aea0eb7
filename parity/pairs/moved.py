"""Find the buffers of torch's model that training changes although Keras has no counterpart for them.

The rehearsal makes only two passes; a buffer that begins to change later is noticed once the training was recorded.
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
    """Return the names of the arrays that do not keep their first state in all later ones."""
    return [name for name, array in states[0].items() if any(not _same(array, later[name]) for later in states[1:])]


def counting(states: Sequence[State]) -> list[str]:
    """Return the names of the arrays that only count passes, given one pass between two successive states."""
    histories = ((name, [state[name] for state in states]) for name in changing(states))
    return [name for name, values in histories if is_counter(values, [1] * (len(values) - 1))]


def is_counter(values: Sequence[Array], passes: Sequence[int]) -> bool:
    """Return whether whole numbers grow by the same amount with every pass, whatever the data.

    `passes` says how many passes there were between each two successive values.
    """
    if any(value.dtype.kind not in "iu" for value in values):
        return False
    steps = zip(values[1:], values, passes, strict=False)
    growth = np.concatenate([np.ravel(now.astype(np.float64) - before) / count for now, before, count in steps])
    return bool(growth.size) and bool((growth == growth[0]).all())


def with_changing_buffers(mapping: Mapping, reference: Trace) -> Mapping:
    """Return the mapping with those constants moved to `changing` that torch's trace shows to change.

    Buffers that only count the passes stay constants.
    """
    changed = [name for name, values in _buffers(reference, set(mapping.constants)).items() if _has_changed(values)]
    if not changed:
        return mapping
    counter_notes = set(map(counts, changed))
    return msgspec.structs.replace(
        mapping,
        constants=[name for name in mapping.constants if name not in changed],
        changing=[*mapping.changing, *changed],
        assumptions=[sentence for sentence in mapping.assumptions if sentence not in counter_notes],
    )


def with_mapping(candidate: Trace, mapping: Mapping) -> Trace:
    """Return Keras's trace with another mapping."""
    changed = copy.copy(candidate)
    changed.manifest = msgspec.structs.replace(candidate.manifest, mapping=mapping)
    return changed


def _has_changed(values: Named[int, Array]) -> bool:
    """Return whether a buffer changes in another way than counting passes; its values are given by passes made."""
    arrays = list(values.values())
    if all(_same(arrays[0], later) for later in arrays[1:]):
        return False
    return not is_counter(arrays, [now - before for before, now in itertools.pairwise(values)])


def _buffers(trace: Trace, wanted: set[str]) -> dict[str, dict[int, Array]]:
    """Return the recorded values of some buffers: by name, then by the number of training passes before them."""
    values: dict[str, dict[int, Array]] = {}
    for stem in trace.stems("high") if wanted else ():
        step = keys.step_of(stem)
        passes = 0 if step is None else step + 1
        for key, array in trace.open("high", stem).items():
            kind, name = keys.split(key)
            if kind == "buffer" and name in wanted:
                values.setdefault(name, {})[passes] = array
    return values


def _same(first: Array, second: Array) -> bool:
    return np.array_equal(first, second, equal_nan=first.dtype.kind in "fc")
