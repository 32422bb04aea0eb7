"""Run Keras's model with one mapping after another, and say what was taken for granted of the mapping that is chosen.

What Keras's model returned in a run is compared with what torch's did: in whole, and tensor by tensor.

Layers of one shape that no name tells apart could be exchanged. Which is which was decided by order, or by what the
models return. Keras's model runs once more with such layers exchanged: if it returns the same, the exchange is
harmless. If names tell layers apart and the models differ, their exchange is tried as well: if it makes the models
equal, the port has exchanged these layers.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from parity.core.arrays import Array
from parity.core.groups import grouped
from parity.core.wording import agree, row
from parity.pairs.activations.counterparts import outputs
from parity.pairs.activations.matching import outputs_apart
from parity.pairs.activations.modules import Surveyed
from parity.pairs.activations.values import SAME, Tensor, could_be_same, fit, tensor
from parity.pairs.weights.links import Ambiguity
from parity.pairs.weights.names import without_numbers
from parity.trace.keys import MODEL
from parity.trace.mapping import Entry, Mapping

MOST_EXCHANGES = 6  # exchanges that are tried; layers whose paths differ only in numbers are exchanged together
MOST_NAMES = 6  # at most so many names in a sentence
FOUND = ": found by running both models"
Choice = Sequence[Entry]
Values = dict[str, Array]
Chosen = tuple[int, ...]  # the number of a choice for each of several ambiguities
Run = Callable[[Mapping], Surveyed]  # Keras's model with a mapping
Outcome = TypeVar("Outcome")


class Resolved(NamedTuple):
    """The mapping, what Keras's model returned with it, and what remains ambiguous.

    `undecided` lists the modules whose ambiguity could not be decided. `ambiguities` are in the order of execution;
    `chosen` holds the number of the choice for each.
    """

    mapping: Mapping
    keras: Surveyed
    undecided: list[str]
    ambiguities: Sequence[Ambiguity] = ()
    chosen: Chosen = ()


def exchanged(mapping: Mapping, new: Sequence[Entry]) -> Mapping:
    """Return the mapping with the given entries in place of those of the same Keras variables."""
    names = {name for entry in new for name in entry.keras}
    kept = [entry for entry in mapping.entries if not names & set(entry.keras)]
    first = next((position for position, entry in enumerate(mapping.entries) if names & set(entry.keras)), len(kept))
    return replace(mapping, entries=[*kept[:first], *new, *kept[first:]])


class Reproduced:
    """What Keras's model returned in one run, in which torch's tensors are looked for."""

    def __init__(self, values: Values) -> None:
        self.by_size = grouped(map(Tensor, values.values()), lambda tensor: tensor.size)

    def has(self, torch: Tensor) -> bool:
        """Return whether some layer returned the same tensor; one number everywhere is no evidence."""
        fits = (fit(torch, keras) for keras in self.by_size.get(torch.size, []) if could_be_same(torch, keras))
        return not torch.is_constant and any(fitted is not None and fitted.distance <= SAME for fitted in fits)

    def count(self, torch: Surveyed) -> int:
        """Return how many of torch's tensors were reproduced."""
        return sum(
            self.has(tensor(torch.values[seen.key])) for seen in torch.survey.outputs if seen.key in torch.values
        )


def agrees(torch: Surveyed, keras: Values) -> bool:
    """Return whether both models return the same, in some order of axes where their shapes differ."""
    if outputs_apart(torch, keras) <= SAME:
        return True
    keys = outputs(torch.survey)
    if not keys or any(key not in torch.values or key not in keras for key in keys):
        return False
    tensors = [(Tensor(torch.values[key]), Tensor(keras[key])) for key in keys]
    if all(ours.array.shape == theirs.array.shape or ours.is_constant for ours, theirs in tensors):
        return False
    fits = [fit(*pair) for pair in tensors]
    return all(fitted is not None and fitted.distance <= SAME for fitted in fits)


class Trials:
    """Runs of Keras's model with one mapping after another, counted, beside what torch's model returned.

    `run` may overwrite what it returned once it is called again. `most`: after so many runs no hypothesis is tried.
    """

    def __init__(self, torch: Surveyed, run: Run, most: float = math.inf) -> None:
        self.torch, self.most, self.runs = torch, most, 0
        self._run = run

    def up_to(self, most: float) -> "Trials":
        """Return trials of the same models with a count of their own."""
        return Trials(self.torch, self._run, most)

    def run(self, mapping: Mapping) -> Surveyed:
        """Return the survey of Keras's model, and what it returns with a mapping."""
        self.runs += 1
        return self._run(mapping)

    def agree(self, values: Values) -> bool:
        """Return whether both models return the same, if Keras's has returned `values`."""
        return agrees(self.torch, values)

    def agree_with(self, mapping: Mapping) -> bool | None:
        """Return whether both models return the same with a mapping; None without a run after too many of them."""
        return self.agree(self.run(mapping).values) if self.runs < self.most else None

    def first(self, hypotheses: Iterable[tuple[Outcome, Mapping]]) -> Outcome | None:
        """Return what follows from the first hypothesis with whose mapping both models return the same, if any does."""
        for outcome, mapping in hypotheses:
            agreed = self.agree_with(mapping)
            if agreed is not False:
                return outcome if agreed else None
        return None


class _EqualAmbiguities(NamedTuple):
    """The same ambiguity at layers whose paths differ only in numbers, with the same choice in all of them."""

    ambiguities: list[Ambiguity]
    chosen: int

    @property
    def others(self) -> list[int]:
        """Return the numbers of the choices that pair the weights differently, not only move them differently."""
        pairs = self.ambiguities[0].pairs
        return [number for number, others in enumerate(pairs) if others != pairs[self.chosen]]

    @property
    def is_first(self) -> bool:
        """Return whether the weights are paired as first proposed."""
        pairs = self.ambiguities[0].pairs
        return pairs[self.chosen] == pairs[0]

    def exchanged(self, mapping: Mapping, other: int) -> Mapping:
        """Return the mapping with another choice in all of the layers."""
        for ambiguity in self.ambiguities:
            mapping = exchanged(mapping, ambiguity.choices[other])
        return mapping


def assume(resolved: Resolved, named: Sequence[Ambiguity], trials: Trials) -> Resolved:
    """Return the resolved mapping with its assumptions, each tried the other way round where possible.

    `named` are the ambiguities that names decide. Weights that remained undecided are left out. If Keras's model had
    to run for this, it runs once more with the final mapping, and the returned survey and values are of that run.
    """
    trials = trials.up_to(MOST_EXCHANGES)
    is_equal = trials.agree(resolved.keras.values)
    mapping = _assumed(resolved, trials, is_equal)
    if not is_equal:
        # Layers exchanged that names tell apart, with a sentence on these by torch's module.
        exchanges = (
            ({group.ambiguities[0].place: _taken(group.ambiguities[0].choices[other])}, group.exchanged(mapping, other))
            for group in _together((ambiguity, 0) for ambiguity in named)
            for other in group.others
        )
        mapping = replace(mapping, exchanged=mapping.exchanged or trials.first(exchanges) or {})
    if trials.runs:
        resolved = resolved._replace(keras=trials.run(mapping))
    return resolved._replace(mapping=mapping)


def unresolved(ambiguities: Sequence[Ambiguity]) -> list[str]:
    """Return sentences on choices that were never tried, because the models cannot be run yet."""
    return [_open(group, "running would tell") for group in _together((each, 0) for each in ambiguities)]


def _assumed(resolved: Resolved, trials: Trials, is_equal: bool) -> Mapping:
    """Return the mapping with its assumptions, those contradicted too; if outputs are equal, an exchange is tried."""
    sentences, contradicted = list(resolved.mapping.assumptions), []
    for group in _together(zip(resolved.ambiguities, resolved.chosen, strict=True)):
        if any((ambiguity.place or MODEL) in resolved.undecided for ambiguity in group.ambiguities):
            sentences.append(_open(group))
            continue
        is_tried = is_equal and group.others
        harmless = trials.agree_with(group.exchanged(resolved.mapping, group.others[0])) if is_tried else None
        sentences.append(_sentence(group, harmless))
        if harmless is False and group.ambiguities[0].counted and not group.is_first:
            contradicted.append(sentences[-1])
    return replace(resolved.mapping, assumptions=sentences, contradicted=contradicted)


def _together(chosen: Iterable[tuple[Ambiguity, int]]) -> list[_EqualAmbiguities]:
    """Group equal choices at ambiguities whose paths differ only in numbers."""
    groups = grouped(chosen, lambda each: (without_numbers(each[0].place), len(each[0].choices), each[1]))
    return [_EqualAmbiguities([ambiguity for ambiguity, _ in group], key[-1]) for key, group in groups.items()]


def _sentence(group: _EqualAmbiguities, harmless: bool | None) -> str:
    """Say what is assumed, why, and what the alternative comes to."""
    alike = f", and {len(group.ambiguities) - 1} alike" if len(group.ambiguities) > 1 else ""
    choice = group.ambiguities[0].choices[group.chosen]
    assumption = f"{_taken(choice)}{alike}"
    if not group.others:
        moves = sorted({move for entry in choice if (move := _move(entry))})
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
    order = f"parts in the order {row(entry.order)}" if entry.order else ""
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
