"""Hold what Keras's model returned in a run, and compare it with what torch's did: in whole, and tensor by tensor."""

import heapq
import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeVar

import msgspec

from parity.core.arrays import Array
from parity.core.groups import grouped
from parity.pairs.activations.counterparts import outputs
from parity.pairs.activations.matching import outputs_apart
from parity.pairs.activations.values import CLEARLY, SAME, Tensor, could_be_same, fit, tensor
from parity.pairs.weights.links import Ambiguity
from parity.runtime.survey import Survey
from parity.trace.mapping import Entry, Mapping

Values = dict[str, Array]
Chosen = tuple[int, ...]  # the number of a choice for each of several ambiguities
Run = Callable[[Mapping], tuple[Survey, Values]]  # Keras's model with a mapping
Outcome = TypeVar("Outcome")


class Resolved(NamedTuple):
    """The mapping, what Keras's model returned with it, and what remains ambiguous.

    `undecided` lists the modules whose ambiguity could not be decided. `ambiguities` are in the order of execution;
    `chosen` holds the number of the choice for each.
    """

    mapping: Mapping
    survey: Survey
    values: Values
    undecided: list[str]
    ambiguities: Sequence[Ambiguity] = ()
    chosen: Chosen = ()


def exchanged(mapping: Mapping, new: Sequence[Entry]) -> Mapping:
    """Return the mapping with the given entries in place of those of the same Keras variables."""
    names = {name for entry in new for name in entry.keras}
    kept = [entry for entry in mapping.entries if not names & set(entry.keras)]
    first = next((position for position, entry in enumerate(mapping.entries) if names & set(entry.keras)), len(kept))
    return msgspec.structs.replace(mapping, entries=[*kept[:first], *new, *kept[first:]])


class Reproduced:
    """What Keras's model returned in one run, in which torch's tensors are looked for."""

    def __init__(self, values: Values) -> None:
        self.by_size = grouped(map(Tensor, values.values()), lambda tensor: tensor.size)

    def has(self, torch: Tensor) -> bool:
        """Return whether some layer returned the same tensor; one number everywhere is no evidence."""
        fits = (fit(torch, keras) for keras in self.by_size.get(torch.size, []) if could_be_same(torch, keras))
        return not torch.is_constant and any(fitted is not None and fitted.distance <= SAME for fitted in fits)

    def count(self, survey: Survey, values: Values) -> int:
        """Return how many of torch's tensors were reproduced."""
        return sum(self.has(tensor(values[seen.key])) for seen in survey.outputs if seen.key in values)


def agrees(torch: Survey, torch_values: Values, keras_values: Values) -> bool:
    """Return whether both models return the same, in some order of axes where their shapes differ."""
    if outputs_apart(torch, torch_values, keras_values) <= SAME:
        return True
    keys = outputs(torch)
    if not keys or any(key not in torch_values or key not in keras_values for key in keys):
        return False
    tensors = [(Tensor(torch_values[key]), Tensor(keras_values[key])) for key in keys]
    if all(ours.array.shape == theirs.array.shape or ours.is_constant for ours, theirs in tensors):
        return False
    fits = [fit(*pair) for pair in tensors]
    return all(fitted is not None and fitted.distance <= SAME for fitted in fits)


class Trials:
    """Runs of Keras's model with one mapping after another, counted, beside what torch's model returned.

    `run` may overwrite what it returned once it is called again. `most`: after so many runs no hypothesis is tried.
    """

    def __init__(self, torch: Survey, torch_values: Values, run: Run, most: float = math.inf) -> None:
        self.torch, self.torch_values, self.most, self.runs = torch, torch_values, most, 0
        self._run = run

    def up_to(self, most: float) -> "Trials":
        """Return trials of the same models with a count of their own."""
        return Trials(self.torch, self.torch_values, self._run, most)

    def run(self, mapping: Mapping) -> tuple[Survey, Values]:
        """Return the survey of Keras's model, and what it returns with a mapping."""
        self.runs += 1
        return self._run(mapping)

    def agree(self, values: Values) -> bool:
        """Return whether both models return the same, if Keras's has returned `values`."""
        return agrees(self.torch, self.torch_values, values)

    def agree_with(self, mapping: Mapping) -> bool | None:
        """Return whether both models return the same with a mapping; None without a run after too many of them."""
        return self.agree(self.run(mapping)[1]) if self.runs < self.most else None

    def first(self, hypotheses: Iterable[tuple[Outcome, Mapping]]) -> Outcome | None:
        """Return what follows from the first hypothesis with whose mapping both models return the same, if any does."""
        for outcome, mapping in hypotheses:
            agreed = self.agree_with(mapping)
            if agreed is not False:
                return outcome if agreed else None
        return None


def nearest(distances: dict[Chosen, list[float]], positions: range, limit: float) -> list[Chosen]:
    """Return the choices with most tensors reproduced here, or the clearly nearest to a larger limit; or all."""
    choices = list(distances)
    if limit == SAME:
        counts = {chosen: sum(distances[chosen][each] <= SAME for each in positions) for chosen in choices}
        return [chosen for chosen in choices if counts[chosen] == max(counts.values())]
    for position in positions:
        column = [distances[chosen][position] for chosen in choices]
        closest, second = heapq.nsmallest(2, column)
        if closest <= limit and second > SAME and closest < CLEARLY * second:
            return [choices[column.index(closest)]]
    return choices
