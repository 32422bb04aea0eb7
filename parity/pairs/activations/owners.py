"""Which modules own the same weights, on the two sides: what a mapping of weights says of modules."""

from collections import Counter
from collections.abc import Iterator, Sequence

from parity.trace.mapping import Mapping
from parity.trace.survey import Survey

SEPARATORS = {"torch": ".", "keras": "/"}
Owned = dict[str, frozenset[int]]  # module -> numbers of the mapping's entries whose weights are within it


def owned(survey: Survey, mapping: Mapping) -> Owned:
    """What each module owns, those within it included. A module that owns a part of an entry is left out.

    Two modules, one of each side, that own the same have the same part in the computation.
    """
    separator = SEPARATORS[survey.side]
    holders = _holders(survey, separator)
    whole: dict[str, set[int]] = {}
    partly: set[str] = set()
    for number, entry in enumerate(mapping.entries):
        names = entry.torch if survey.side == "torch" else entry.keras
        for path, count in _counted(names, holders, separator).items():
            whole.setdefault(path, set()).add(number)
            if count < len(names):
                partly.add(path)
    return {path: frozenset(numbers) for path, numbers in whole.items() if path not in partly}


def ancestors(path: str, separator: str) -> Iterator[str]:
    """The paths of the modules around one, the nearest first."""
    while separator in path:
        path = path.rpartition(separator)[0]
        yield path


def _holders(survey: Survey, separator: str) -> dict[str, set[str]]:
    """The modules that hold a weight: several if it is tied."""
    holders = {weight.name: {weight.module} for weight in survey.weights}
    for alias, name in survey.tied.items():
        holders.setdefault(name, set()).add(alias.rpartition(separator)[0])
    for alias, name in survey.tied.items():
        holders[alias] = holders[name]
    return holders


def _counted(names: Sequence[str], holders: dict[str, set[str]], separator: str) -> Counter[str]:
    """How many of some weights each module has within it."""
    found: Counter[str] = Counter()
    for name in names:
        modules = holders.get(name, set())
        found.update({path for module in modules for path in (module, *ancestors(module, separator))})
    return found
