"""What a mapping of weights took for granted, told in sentences, and tried the other way too.

Layers of one shape that no name tells apart could be exchanged: which is which was decided by order, or by what the
models return. Then Keras's model runs once more with them exchanged: if it returns the same, the exchange is harmless.
"""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from parity.pairs.activations.matching import outputs_apart
from parity.pairs.activations.values import SAME
from parity.pairs.mapping import Entry
from parity.pairs.settle import Doubt, Run, Settled, Values, exchanged
from parity.pairs.survey import Survey

MOST_RUNS = 4  # exchanges that are tried; layers alike are exchanged together
MOST_NAMES = 6
Choice = Sequence[Entry]


class _Alike(NamedTuple):
    """The same doubt in equal layers, and the same choice."""

    doubts: list[Doubt]
    chosen: int

    @property
    def choice(self) -> Choice:
        """What was chosen at the first of them."""
        return self.doubts[0].choices[self.chosen]

    @property
    def other(self) -> int | None:
        """The first choice in which other weights belong together."""
        choices = self.doubts[0].choices
        return next((n for n, choice in enumerate(choices) if _pairs(choice) != _pairs(self.choice)), None)


def assume(settled: Settled, torch: Survey, torch_values: Values, run: Run) -> Settled:
    """The same with the assumptions in its mapping. What `settled` holds of Keras's last run is that of a new one.

    Weights that the models' outputs have not told apart are left to `undecided`.
    """
    agree = outputs_apart(torch, torch_values, settled.values) <= SAME
    groups = [group for group in _alike(settled) if group.doubts[0].place not in settled.undecided]
    assumptions, contradicted, runs = list(settled.mapping.assumptions), [], 0
    for group in groups:
        harmless = None
        if agree and group.other is not None and runs < MOST_RUNS:
            harmless, runs = _is_harmless(group, settled, torch, torch_values, run), runs + 1
        assumptions.append(_sentence(group, harmless))
        if agree and harmless is False and group.doubts[0].counted and not _is_first(group):
            contradicted.append(_sentence(group, harmless))
    mapping = msgspec.structs.replace(settled.mapping, assumptions=assumptions, contradicted=contradicted)
    survey, values = run(mapping) if runs else (settled.survey, settled.values)
    return settled._replace(mapping=mapping, survey=survey, values=values, runs=settled.runs + runs + bool(runs))


def _alike(settled: Settled) -> list[_Alike]:
    found: dict[tuple[str, int, int], _Alike] = {}
    for doubt, chosen in zip(settled.doubts, settled.chosen, strict=True):
        key = re.sub(r"\d+", "#", doubt.place), len(doubt.choices), chosen
        found.setdefault(key, _Alike([], chosen)).doubts.append(doubt)
    return list(found.values())


def _is_harmless(group: _Alike, settled: Settled, torch: Survey, torch_values: Values, run: Run) -> bool:
    """Whether Keras's model returns the same with the layers of a group exchanged."""
    mapping = settled.mapping
    for doubt in group.doubts:
        mapping = exchanged(mapping, doubt.choices[group.other or 0])
    return outputs_apart(torch, torch_values, run(mapping)[1]) <= SAME


def _pairs(choice: Choice) -> set[tuple[str, ...]]:
    return {(*entry.torch, "", *entry.keras) for entry in choice}


def _is_first(group: _Alike) -> bool:
    return _pairs(group.choice) == _pairs(group.doubts[0].choices[0])


def _sentence(group: _Alike, harmless: bool | None) -> str:
    """What is assumed, why, and what the other way comes to."""
    ours = _named((name for entry in group.choice for name in entry.torch), ".")
    theirs = _named((name for entry in group.choice for name in entry.keras), "/")
    alike = f", and {len(group.doubts) - 1} alike" if len(group.doubts) > 1 else ""
    said = f"{ours} of torch were taken to be {theirs} of keras{alike}"
    if group.other is None:
        moves = sorted({entry.rearrange for entry in group.choice if entry.rearrange})
        return f"{said}, moved by {'; '.join(moves) or 'nothing'}: only running tells"
    order = "creation" if group.doubts[0].counted else "execution"
    why = f"by order of {order}" if _is_first(group) else f"by what the models return, against the order of {order}"
    other = {None: "", True: "; the other way round matches too", False: "; the other way round differs"}[harmless]
    return f"{said} ({why}){other}"


def _named(names: Iterable[str], separator: str) -> str:
    """The modules of some weights, or the weights where they are one module's."""
    every = list(dict.fromkeys(names))
    modules = list(dict.fromkeys(name.rpartition(separator)[0] for name in every))
    told = modules if len(modules) > 1 else every
    return ", ".join(told[:MOST_NAMES]) + (", ..." if len(told) > MOST_NAMES else "")
