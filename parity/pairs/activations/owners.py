"""Tell which modules own which weights, by the entries of the weight mapping, so that both sides can be compared."""

from collections import Counter
from collections.abc import Iterator
from itertools import chain

from parity.runtime.survey import Survey
from parity.trace.mapping import Mapping

SEPARATORS = {"torch": ".", "keras": "/"}
Owned = dict[str, frozenset[int]]  # module -> numbers of the mapping's entries whose weights are within it


def owned(survey: Survey, mapping: Mapping) -> Owned:
    """Return the entries that each module owns, those of modules within it included.

    A module that owns only a part of an entry is left out. Two modules, one of each side, that own the same entries
    play the same part in the computation.
    """
    separator = SEPARATORS[survey.side]
    holders = _holders(survey, separator)
    whole: dict[str, set[int]] = {}
    partly: set[str] = set()
    for number, entry in enumerate(mapping.entries):
        names = entry.torch if survey.side == "torch" else entry.keras
        within = (
            {path for module in holders.get(name, ()) for path in (module, *ancestors(module, separator))}
            for name in names
        )
        for path, count in Counter(chain.from_iterable(within)).items():
            whole.setdefault(path, set()).add(number)
            if count < len(names):
                partly.add(path)
    return {path: frozenset(numbers) for path, numbers in whole.items() if path not in partly}


def left_out(survey: Survey, mapping: Mapping) -> Owned:
    """Return a negative number for each module that holds weights which are left out of the comparison.

    The user says so, or nothing that is compared depends on them. It is no layer that has other weights, and none of
    those has its place.
    """
    ignored = mapping.left_out
    modules = dict.fromkeys(weight.module for weight in survey.weights if weight.name in ignored)
    return {module: frozenset({-1 - number}) for number, module in enumerate(modules)}


def ancestors(path: str, separator: str) -> Iterator[str]:
    """Yield the paths of the modules around a path, the nearest first."""
    while separator in path:
        path = path.rpartition(separator)[0]
        yield path


def _holders(survey: Survey, separator: str) -> dict[str, set[str]]:
    """Return, for each weight, the modules that hold it: several if it is tied."""
    holders = {weight.name: {weight.module} for weight in survey.weights}
    for alias, name in survey.tied.items():
        holders.setdefault(name, set()).add(alias.rpartition(separator)[0])
    for alias, name in survey.tied.items():
        holders[alias] = holders[name]
    return holders
