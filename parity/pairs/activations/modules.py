"""Tell of modules which weights they own and which drop something, and which matches therefore hold in training.

Two modules, one of each side, that own the same entries of the weight mapping play the same part in the computation.

In inference a dropout returns its input. So a block of torch's that ends after its dropout, and one of Keras's that
ends before it, return the same tensor in inference and different ones in training.

Tensors are matched by what the models return in inference, and are known by the number of the call. A module that
training calls more often, as a head that also serves an auxiliary loss, may have its calls in another order on each
side: then the first call of one side is not that of the other.
"""

from collections import Counter
from collections.abc import Iterator
from itertools import accumulate, chain
from typing import NamedTuple

from msgspec.structs import replace

from parity.core.arrays import Array
from parity.core.groups import by_key
from parity.runtime.survey import Module, Survey
from parity.trace.mapping import Mapping, Match, Matching

SEPARATORS = {"torch": ".", "keras": "/"}
# Words in the kinds of modules that do nothing in inference and something at random in training.
RANDOM = ("drop", "noise", "stochastic")
Owned = dict[str, frozenset[int]]  # module -> numbers of the mapping's entries whose weights are within it


class Surveyed(NamedTuple):
    """A side's survey, and what its model returned in inference, by key: whole tensors, in a certificate excerpts."""

    survey: Survey
    values: dict[str, Array]


def owned(survey: Survey, mapping: Mapping) -> Owned:
    """Return the entries that each module owns, those of modules within it included.

    A module that owns only a part of an entry is left out.
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


def drops(module: Module) -> bool:
    """Return whether a module does something at random in training alone, as a dropout with a rate above 0."""
    return is_random(module.kind) and bool(module.facts.get("rate", 1.0))


def is_random(kind: str) -> bool:
    """Return whether modules of a kind do something at random in training."""
    return any(part in kind.lower() for part in RANDOM)


def in_training(matching: Matching, torch: Survey, keras: Survey) -> Matching:
    """Return the matching without containers that drop something, or whose calls training orders otherwise."""
    dropping = _containers(torch) | reordered(matching, torch, keras), _containers(keras)

    unmatched = [match for match in matching.matches if not _is_outside(match, dropping)]
    return replace(
        matching,
        matches=[match for match in matching.matches if _is_outside(match, dropping)],
        torch_alone=[*matching.torch_alone, *(match.torch for match in unmatched)],
        keras_alone=[*matching.keras_alone, *(match.keras for match in unmatched)],
        fed=[each for each in matching.fed if each.torch not in dropping[0] and each.keras not in dropping[1]],
    )


def _containers(survey: Survey) -> set[str]:
    """Return all modules around a dropout with a rate above 0.

    The whole model is not among them, since its outputs are compared anyway. Neither is an attention around the
    dropout of its weights, which is inside it on both sides.
    """
    separator = SEPARATORS[survey.side]
    containers: set[str] = set()
    for dropout in survey.modules:
        around = list(ancestors(dropout.path, separator))
        is_inside_attention = bool(around) and survey.kind(around[0]) == "attention"
        if drops(dropout) and not is_inside_attention:
            containers.update(around)
    return containers


def reordered(matching: Matching, torch: Survey, keras: Survey) -> set[str]:
    """Return torch's modules with another number of calls in training, whose calls come at other times in Keras.

    The time of a call is the number of those tensors returned before it that both sides return in training as often
    as in inference.
    """
    varying = _varying(torch), _varying(keras)
    if not any(varying):
        return set()
    steady = [match for match in matching.matches if _is_outside(match, varying)]
    times = (
        _times(torch, {match.torch for match in steady if match.keras in keras.rehearsal.drawn}),
        _times(keras, {match.keras for match in steady if match.torch in torch.rehearsal.drawn}),
    )
    modules = {(module(match.torch), module(match.keras)) for match in matching.matches}
    return {
        ours
        for ours, theirs in modules
        if (ours in varying[0] or theirs in varying[1]) and times[0].get(ours) != times[1].get(theirs)
    }


def _is_outside(match: Match, modules: tuple[set[str], set[str]]) -> bool:
    """Return whether a match is of none of these modules of torch's and of Keras's."""
    return module(match.torch) not in modules[0] and module(match.keras) not in modules[1]


def module(key: str) -> str:
    """Return the module in the key of a tensor that it returned."""
    return key.partition("#")[0]


def _varying(survey: Survey) -> set[str]:
    """Return the modules that return more or fewer tensors in training than in inference, but some in both."""
    inference = Counter(seen.module for seen in survey.outputs)
    training = Counter(map(module, survey.rehearsal.drawn))
    return {path for path, count in inference.items() if path and training[path] not in (0, count)}


def _times(survey: Survey, steady: set[str]) -> dict[str, list[int]]:
    """Return, by module, how many `steady` tensors were returned in training before each of its tensors."""
    drawn = list(survey.rehearsal.drawn)
    before = accumulate((key in steady for key in drawn), initial=0)
    return by_key((module(key), count) for key, count in zip(drawn, before, strict=False))
