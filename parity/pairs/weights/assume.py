"""Put into sentences what the weight mapping took for granted, and try the alternatives.

Layers of one shape that no name tells apart could be exchanged. Which is which was decided by order, or by what the
models return. Keras's model runs once more with such layers exchanged: if it returns the same, the exchange is
harmless. If names tell layers apart and the models differ, their exchange is tried as well: if it makes the models
equal, the port has exchanged these layers.
"""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from parity.core.groups import grouped
from parity.core.wording import agree
from parity.pairs.weights.links import Ambiguity
from parity.pairs.weights.runs import Resolved, Run, Values, agrees, exchanged
from parity.runtime.survey import Survey
from parity.trace.keys import MODEL
from parity.trace.mapping import Entry, Mapping

MOST_RUNS = 6  # exchanges that are tried; layers whose paths differ only in numbers are exchanged together
MOST_NAMES = 6  # at most so many names in a sentence
FOUND = ": found by running both models"
Choice = Sequence[Entry]


class _EqualAmbiguities(NamedTuple):
    """The same ambiguity at layers whose paths differ only in numbers, with the same choice in all of them."""

    ambiguities: list[Ambiguity]
    chosen: int

    @property
    def choice(self) -> Choice:
        """Return the entries that were chosen in the first of the layers."""
        return self.ambiguities[0].choices[self.chosen]

    @property
    def others(self) -> list[int]:
        """Return the numbers of the choices that pair the weights differently, not only move them differently."""
        choices = enumerate(self.ambiguities[0].choices)
        return [number for number, choice in choices if _pairs(choice) != _pairs(self.choice)]

    @property
    def is_first(self) -> bool:
        """Return whether the weights are paired as first proposed."""
        return _pairs(self.choice) == _pairs(self.ambiguities[0].choices[0])


def assume(resolved: Resolved, named: Sequence[Ambiguity], torch: Survey, torch_values: Values, run: Run) -> Resolved:
    """Return the resolved mapping with its assumptions, each tried the other way round where possible.

    `named` are the ambiguities that names decide. Weights that remained undecided are left out. If Keras's model had
    to run for this, it runs once more with the final mapping, and the returned survey and values are of that run.
    """
    trials = _Trials(resolved, torch, torch_values, run)
    if trials.agree:
        return trials.ended(trials.assumed())
    found = resolved.mapping.exchanged or trials.exchanged(named)
    mapping = msgspec.structs.replace(trials.assumed(), exchanged=found)
    return trials.ended(mapping)


def unresolved(ambiguities: Sequence[Ambiguity]) -> list[str]:
    """Return sentences on choices that were never tried, because the models cannot be run yet."""
    return [_open(group, "running would tell") for group in _together((each, 0) for each in ambiguities)]


class _Trials:
    """Runs of Keras's model with other choices.

    `agree` says whether both models return the same with the mapping as it is, `runs` how often Keras's model has
    run.
    """

    def __init__(self, resolved: Resolved, torch: Survey, torch_values: Values, run: Run) -> None:
        self.resolved, self.torch, self.torch_values, self.run = resolved, torch, torch_values, run
        self.agree = self._agrees(resolved.values)
        self.runs = 0

    def assumed(self) -> Mapping:
        """Return the mapping with its assumptions, and those among them that the order of creation contradicts."""
        sentences, contradicted = list(self.resolved.mapping.assumptions), []
        decided = zip(self.resolved.ambiguities, self.resolved.chosen, strict=True)
        undecided = self.resolved.undecided
        for group in _together(decided):
            if any((ambiguity.place or MODEL) in undecided for ambiguity in group.ambiguities):
                sentences.append(_open(group))
                continue
            harmless = self._is_harmless(group, group.others[0]) if self.agree and group.others else None
            sentences.append(_sentence(group, harmless))
            if harmless is False and group.ambiguities[0].counted and not group.is_first:
                contradicted.append(sentences[-1])
        return msgspec.structs.replace(self.resolved.mapping, assumptions=sentences, contradicted=contradicted)

    def exchanged(self, named: Sequence[Ambiguity]) -> dict[str, str]:
        """Return the layers that the port has exchanged although names tell them apart, or {}.

        An exchange counts if both models agree once it is undone. The key is torch's module, the value a sentence.
        """
        for group in _together((ambiguity, 0) for ambiguity in named):
            for other in group.others:
                if self._is_harmless(group, other):
                    return {group.ambiguities[0].place: _taken(group.ambiguities[0].choices[other])}
        return {}

    def ended(self, mapping: Mapping) -> Resolved:
        """Return the result with a mapping, after a last run if the last one was a trial."""
        resolved = self.resolved._replace(mapping=mapping)
        if not self.runs:
            return resolved
        survey, values = self.run(mapping)
        return resolved._replace(survey=survey, values=values, runs=resolved.runs + self.runs + 1)

    def _is_harmless(self, group: _EqualAmbiguities, other: int) -> bool | None:
        """Return whether both models agree with another choice in all layers of a group.

        Return None without trying after too many runs.
        """
        if self.runs >= MOST_RUNS:
            return None
        self.runs += 1
        mapping = self.resolved.mapping
        for ambiguity in group.ambiguities:
            mapping = exchanged(mapping, ambiguity.choices[other])
        return self._agrees(self.run(mapping)[1])

    def _agrees(self, values: Values) -> bool:
        return agrees(self.torch, self.torch_values, values)


def _together(chosen: Iterable[tuple[Ambiguity, int]]) -> list[_EqualAmbiguities]:
    """Group equal choices at ambiguities whose paths differ only in numbers."""
    groups = grouped(chosen, lambda each: (re.sub(r"\d+", "#", each[0].place), len(each[0].choices), each[1]))
    return [_EqualAmbiguities([ambiguity for ambiguity, _ in group], key[-1]) for key, group in groups.items()]


def _pairs(choice: Choice) -> set[tuple[str, ...]]:
    return {(*entry.torch, "", *entry.keras) for entry in choice}


def _sentence(group: _EqualAmbiguities, harmless: bool | None) -> str:
    """Say what is assumed, why, and what the alternative comes to."""
    alike = f", and {len(group.ambiguities) - 1} alike" if len(group.ambiguities) > 1 else ""
    assumption = f"{_taken(group.choice)}{alike}"
    if not group.others:
        moves = sorted({move for entry in group.choice if (move := _move(entry))})
        return f"{assumption}, moved by {'; '.join(moves) or 'nothing'}{FOUND}"
    order = "creation" if group.ambiguities[0].counted else "execution"
    why = f"by order of {order}" if group.is_first else f"by what the models return, against the order of {order}"
    alternative = {None: "", True: "; the other way round matches too", False: "; the other way round differs"}[
        harmless
    ]
    return f"{assumption} ({why}){alternative}"


def _move(entry: Entry) -> str:
    """Return how an entry moves its weights: a slice is the part of torch's that Keras has."""
    part = f'slice "{entry.slice}"' if entry.slice else ""
    order = f"parts in the order {' '.join(map(str, entry.order))}" if entry.order else ""
    return ", ".join(filter(None, (part, entry.rearrange, order, entry.each)))


def _open(group: _EqualAmbiguities, why: str = "nothing tells which is right") -> str:
    """Say what was taken of weights that running tells nothing about, and how else they could be read."""
    taken = _sentence(group, None).removesuffix(FOUND)
    if not group.others:
        return f"{taken}: {why}"
    other = _taken(group.ambiguities[0].choices[group.others[0]]).rpartition(" to be ")[2]
    return f"{taken}; the other reading is {other}: {why}"


def _taken(choice: Choice) -> str:
    torch_names = _named((name for entry in choice for name in entry.torch), ".")
    keras_names = _named((name for entry in choice for name in entry.keras), "/")
    return f"{torch_names} of torch {agree(1 + torch_names.count(','), 'was')} taken to be {keras_names} of keras"


def _named(names: Iterable[str], separator: str) -> str:
    """List modules, or weights if they all belong to one module."""
    weights = list(dict.fromkeys(names))
    modules = list(dict.fromkeys(name.rpartition(separator)[0] for name in weights))
    shown = modules if len(modules) > 1 else weights
    return ", ".join(shown[:MOST_NAMES]) + (", ..." if len(shown) > MOST_NAMES else "")
