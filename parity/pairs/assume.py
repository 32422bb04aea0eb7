"""What a mapping of weights took for granted, told in sentences, and tried the other way too.

Layers of one shape that no name tells apart could be exchanged: which is which was decided by order, or by what the
models return. Then Keras's model runs once more with them exchanged: if it returns the same, the exchange is harmless.
Where names decide and the models differ, the exchange is tried as well: if it makes them equal, the port has it.
"""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from parity.core.names import MODEL
from parity.pairs.activations.matching import outputs_apart
from parity.pairs.activations.values import SAME
from parity.pairs.resolve import Ambiguity, Resolved, Run, Values, exchanged
from parity.trace.mapping import Entry, Mapping
from parity.trace.survey import Survey

MOST_RUNS = 6  # exchanges that are tried; layers alike are exchanged together
MOST_NAMES = 6
Choice = Sequence[Entry]


class _Alike(NamedTuple):
    """The same ambiguity in equal layers, and the same choice."""

    ambiguities: list[Ambiguity]
    chosen: int

    @property
    def choice(self) -> Choice:
        """What was chosen at the first of them."""
        return self.ambiguities[0].choices[self.chosen]

    @property
    def others(self) -> list[int]:
        """The choices in which other weights belong together."""
        every = enumerate(self.ambiguities[0].choices)
        return [number for number, choice in every if _pairs(choice) != _pairs(self.choice)]

    @property
    def is_first(self) -> bool:
        """Whether what belongs together was proposed to."""
        return _pairs(self.choice) == _pairs(self.ambiguities[0].choices[0])


def assume(resolved: Resolved, named: Sequence[Ambiguity], torch: Survey, torch_values: Values, run: Run) -> Resolved:
    """The same with the assumptions in its mapping. What it then holds of Keras's last run is that of a new one.

    Weights that the models' outputs have not told apart are left to `undecided`. `named`: what names tell apart.
    """
    trying = _Trying(resolved, torch, torch_values, run)
    if trying.agree:
        return trying.ended(trying.assumed())
    mapping = msgspec.structs.replace(trying.assumed(), exchanged=trying.exchanged(named))
    return trying.ended(mapping)


class _Trying:
    """`agree`: whether both models return the same. `runs`: of Keras's model."""

    def __init__(self, resolved: Resolved, torch: Survey, torch_values: Values, run: Run) -> None:
        self.resolved, self.torch, self.torch_values, self.run = resolved, torch, torch_values, run
        self.agree = self._agrees(resolved.values)
        self.runs = 0

    def assumed(self) -> Mapping:
        """The mapping with what was assumed, and what of that the order of creation contradicts."""
        told, contradicted = list(self.resolved.mapping.assumptions), []
        decided = zip(self.resolved.ambiguities, self.resolved.chosen, strict=True)
        undecided = self.resolved.undecided
        groups = _together((each, n) for each, n in decided if (each.place or MODEL) not in undecided)
        for group in groups:
            harmless = self._is_harmless(group, group.others[0]) if self.agree and group.others else None
            told.append(_sentence(group, harmless))
            if harmless is False and group.ambiguities[0].counted and not group.is_first:
                contradicted.append(told[-1])
        return msgspec.structs.replace(self.resolved.mapping, assumptions=told, contradicted=contradicted)

    def exchanged(self, named: Sequence[Ambiguity]) -> dict[str, str]:
        """Of layers that names tell apart those with whose exchange the models agree: nothing if that is none."""
        for group in _together((ambiguity, 0) for ambiguity in named):
            for other in group.others:
                if self._is_harmless(group, other):
                    return {group.ambiguities[0].place: _taken(group.ambiguities[0].choices[other])}
        return {}

    def ended(self, mapping: Mapping) -> Resolved:
        """With a last run, if there were others."""
        resolved = self.resolved._replace(mapping=mapping)
        if not self.runs:
            return resolved
        survey, values = self.run(mapping)
        return resolved._replace(survey=survey, values=values, runs=resolved.runs + self.runs + 1)

    def _is_harmless(self, group: _Alike, other: int) -> bool | None:
        """Whether both models agree with another choice in all layers of a group; None after too many runs."""
        if self.runs >= MOST_RUNS:
            return None
        self.runs += 1
        mapping = self.resolved.mapping
        for ambiguity in group.ambiguities:
            mapping = exchanged(mapping, ambiguity.choices[other])
        return self._agrees(self.run(mapping)[1])

    def _agrees(self, values: Values) -> bool:
        return outputs_apart(self.torch, self.torch_values, values) <= SAME


def _together(chosen: Iterable[tuple[Ambiguity, int]]) -> list[_Alike]:
    found: dict[tuple[str, int, int], _Alike] = {}
    for ambiguity, number in chosen:
        key = re.sub(r"\d+", "#", ambiguity.place), len(ambiguity.choices), number
        found.setdefault(key, _Alike([], number)).ambiguities.append(ambiguity)
    return list(found.values())


def _pairs(choice: Choice) -> set[tuple[str, ...]]:
    return {(*entry.torch, "", *entry.keras) for entry in choice}


def _sentence(group: _Alike, harmless: bool | None) -> str:
    """What is assumed, why, and what the other way comes to."""
    alike = f", and {len(group.ambiguities) - 1} alike" if len(group.ambiguities) > 1 else ""
    said = f"{_taken(group.choice)}{alike}"
    if not group.others:
        moves = sorted({entry.rearrange for entry in group.choice if entry.rearrange})
        return f"{said}, moved by {'; '.join(moves) or 'nothing'}: only running tells"
    order = "creation" if group.ambiguities[0].counted else "execution"
    why = f"by order of {order}" if group.is_first else f"by what the models return, against the order of {order}"
    other = {None: "", True: "; the other way round matches too", False: "; the other way round differs"}[harmless]
    return f"{said} ({why}){other}"


def _taken(choice: Choice) -> str:
    ours = _named((name for entry in choice for name in entry.torch), ".")
    theirs = _named((name for entry in choice for name in entry.keras), "/")
    return f"{ours} of torch were taken to be {theirs} of keras"


def _named(names: Iterable[str], separator: str) -> str:
    """The modules of some weights, or the weights where they are one module's."""
    every = list(dict.fromkeys(names))
    modules = list(dict.fromkeys(name.rpartition(separator)[0] for name in every))
    told = modules if len(modules) > 1 else every
    return ", ".join(told[:MOST_NAMES]) + (", ..." if len(told) > MOST_NAMES else "")
