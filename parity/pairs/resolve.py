"""What names, shapes and order could not tell about the weights, told by running.

Wherever the mapping of weights has a choice, Keras's model runs with each one, and the one with which it
reproduces what torch's modules returned, from that place on, is right. Runs cost seconds each: what won at one
layer is tried at all layers alike at once, and a layer that is reproduced is not asked about again.
"""

import heapq
import itertools
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import msgspec

from parity.core.arrays import Array
from parity.core.names import MODEL
from parity.pairs.activations.counterparts import is_output
from parity.pairs.activations.matching import outputs_apart
from parity.pairs.activations.owners import SEPARATORS, ancestors
from parity.pairs.activations.values import CLOSE, SAME, Tensor, could_be_same, fit, glance
from parity.trace.mapping import Entry, Mapping
from parity.trace.survey import Survey

Values = dict[str, Array]
Run = Callable[[Mapping], tuple[Survey, Values]]
Chosen = tuple[int, ...]
MOST_RUNS = 64
MOST_TOGETHER = 12  # combinations of choices, where a tensor needs several ambiguities decided
LOOK_AHEAD = 32  # of torch's tensors, from an ambiguity's place on, that are looked for among Keras's
CANDIDATES = 3  # of Keras's tensors that are compared as a whole, the nearest by a sample
CLEARLY = 0.5  # the winner is nearer than this part of the next one's distance


class Ambiguity(Protocol):
    """A module of torch's whose weights can be mapped in several ways, the first of them in the mapping."""

    @property
    def place(self) -> str: ...

    @property
    def choices(self) -> Sequence[Sequence[Entry]]: ...

    @property
    def counted(self) -> bool: ...


class Proposal(Protocol):
    """A mapping, and its ambiguities."""

    @property
    def mapping(self) -> Mapping: ...

    @property
    def ambiguities(self) -> Sequence[Ambiguity]: ...


class Resolved(NamedTuple):
    """The mapping, what Keras's model returned with it, and the modules that remain ambiguous. `runs`: how many.

    `ambiguities`: in the order of execution; `chosen`: for each the number of its choice.
    """

    mapping: Mapping
    survey: Survey
    values: Values
    undecided: list[str]
    runs: int
    ambiguities: Sequence[Ambiguity] = ()
    chosen: Chosen = ()


def resolve(proposal: Proposal, torch: Survey, torch_values: Values, run: Run) -> Resolved:
    """Decide the ambiguities of a proposal by running. What cannot be told stays as proposed, or as at layers alike.

    What `run` returned is not looked at again after its next call.
    """
    return _Settling(proposal, torch, torch_values, run).resolved()


def exchanged(mapping: Mapping, new: Sequence[Entry]) -> Mapping:
    """The mapping with these entries in place of those of the same Keras variables."""
    names = {name for entry in new for name in entry.keras}
    kept = [entry for entry in mapping.entries if not names & set(entry.keras)]
    first = next((place for place, entry in enumerate(mapping.entries) if names & set(entry.keras)), len(kept))
    return msgspec.structs.replace(mapping, entries=[*kept[:first], *new, *kept[first:]])


class _Settling:
    """`chosen`: of each ambiguity, in the order of execution. `ran`: the choices of the last run."""

    def __init__(self, proposal: Proposal, torch: Survey, torch_values: Values, run: Run) -> None:
        self.mapping, self.torch, self.torch_values, self.run = proposal.mapping, torch, torch_values, run
        self.seen = [seen for seen in torch.outputs if seen.key in torch_values]
        self.tensors = [Tensor(torch_values[seen.key]) for seen in self.seen]
        self.ambiguities = sorted(proposal.ambiguities, key=lambda ambiguity: self._start(ambiguity.place))
        self.chosen: Chosen = (0,) * len(self.ambiguities)
        self.decided: set[int] = set()
        self.evidence: dict[str, str] = {}  # the pattern of an ambiguity's place -> that of the module that decided it
        self.hopeless: set[str] = set()  # patterns of places where nothing could be told
        self.known: dict[tuple[Chosen, int], list[float]] = {}
        self.runs = 0
        self.ran: Chosen | None = None
        self._go()

    def resolved(self) -> Resolved:
        """Ambiguity after ambiguity, until the models agree."""
        for number in range(len(self.ambiguities)):
            self._resolve_all_if_equal()
            if number not in self.decided and not self._is_confirmed(number):
                self._decide(number)
                self._go()
        self._resolve_all_if_equal()
        undecided = [each.place or MODEL for number, each in enumerate(self.ambiguities) if number not in self.decided]
        told = list(dict.fromkeys(undecided))
        return Resolved(self._mapping(), self.survey, self.values, told, self.runs, self.ambiguities, self.chosen)

    def _resolve_all_if_equal(self) -> None:
        """Models that return the same need no further question."""
        if outputs_apart(self.torch, self.torch_values, self.values) <= SAME:
            self.decided.update(range(len(self.ambiguities)))

    def _go(self) -> None:
        """Run with what is chosen, if the last run was another."""
        if self.ran == self.chosen:
            return
        self.survey, self.values = self.run(self._mapping())
        self.ran, self.runs = self.chosen, self.runs + 1
        self.shelves: dict[int, list[Tensor]] = {}
        for array in self.values.values():
            self.shelves.setdefault(array.size, []).append(Tensor(array))

    def _mapping(self) -> Mapping:
        """The proposed one with the choices."""
        found = self.mapping
        for number, (ambiguity, choice) in enumerate(zip(self.ambiguities, self.chosen, strict=True)):
            by = {"by": "run"} if number in self.decided else {}
            found = exchanged(found, [msgspec.structs.replace(entry, **by) for entry in ambiguity.choices[choice]])
        return found

    def _decide(self, number: int) -> None:
        """Try the choices of an ambiguity, alone and then with the next ones, as all may have a part in one tensor."""
        before = self.chosen
        for end in range(number + 1, len(self.ambiguities) + 1):
            group = range(number, end)
            sizes = [range(len(self.ambiguities[i].choices)) for i in group]
            choices = list(itertools.product(*sizes))
            if not self._is_worth_trying(group, len(choices)):
                break
            winner = self._winner(group, choices)
            self.chosen = before
            if winner:
                self._keep(group, winner)
                return
        self.hopeless.add(_pattern(self.ambiguities[number].place))

    def _is_worth_trying(self, group: range, count: int) -> bool:
        first, last = (self._start(self.ambiguities[i].place) for i in (group[0], group[-1]))
        together = len(group) > 1 and (
            count > MOST_TOGETHER
            or last - first >= LOOK_AHEAD
            or _pattern(self.ambiguities[group[0]].place) in self.hopeless
        )
        return not together and self.runs + count < MOST_RUNS

    def _winner(self, group: range, choices: list[Chosen]) -> Chosen | None:
        """The choices with which Keras reproduces a tensor that it does not reproduce with the others."""
        start = self._start(self.ambiguities[group[0]].place)
        here = self.chosen[group.start : group.stop]
        choices = sorted(choices, key=lambda chosen: chosen != here)  # as it is costs no run
        columns = list(zip(*(self._tried(group, chosen, start) for chosen in choices), strict=True))
        for limit in (SAME, CLOSE):  # a tensor that is reproduced says more than one that is nearly so
            for place, apart in enumerate(columns, start):
                nearest, second = heapq.nsmallest(2, apart)
                if nearest <= limit and second > SAME and nearest < CLEARLY * second:
                    self.evidence[_pattern(self.ambiguities[group[0]].place)] = _pattern(self.seen[place].module)
                    return choices[apart.index(nearest)]
        return None

    def _tried(self, group: range, chosen: Chosen, start: int) -> list[float]:
        """How far Keras is from torch's tensors from `start` on, with these choices for a group of ambiguities."""
        self.chosen = (*self.chosen[: group.start], *chosen, *self.chosen[group.stop :])
        if (self.chosen, start) not in self.known:
            self._go()
            window = range(start, min(start + LOOK_AHEAD, len(self.tensors)))
            self.known[self.chosen, start] = [self._distance(place) for place in window]
        return self.known[self.chosen, start]

    def _distance(self, place: int) -> float:
        """To the nearest tensor of Keras's last run. One number everywhere says nothing: 0, whatever is chosen.

        What the whole model returned has a counterpart by its key: of two outputs exchanged both are somewhere.
        """
        torch, key = self.tensors[place], self.seen[place].key
        if torch.is_constant:
            return 0.0
        if is_output(key) and key in self.values:
            found = fit(torch, Tensor(self.values[key]))
            return found.distance if found else float("inf")
        if self._is_reproduced(torch):
            return 0.0
        shelf = self.shelves.get(torch.size, [])
        apart = glance(torch, shelf)
        fits = [fit(torch, shelf[place]) for place in heapq.nsmallest(CANDIDATES, range(len(shelf)), apart.__getitem__)]
        return min((found.distance for found in fits if found), default=float("inf"))

    def _is_reproduced(self, torch: Tensor) -> bool:
        """Whether Keras's last run has the same tensor."""
        same = (fit(torch, keras) for keras in self.shelves.get(torch.size, []) if could_be_same(torch, keras))
        return any(found is not None and found.distance <= SAME for found in same)

    def _keep(self, group: range, winner: Chosen) -> None:
        """Choose so for good, and for now wherever a later ambiguity is alike."""
        chosen = list(self.chosen)
        for number, choice in zip(group, winner, strict=True):
            self.decided.add(number)
            chosen[number] = choice
            for later in range(group.stop, len(self.ambiguities)):
                if later not in self.decided and self._alike(number) == self._alike(later):
                    chosen[later] = choice
        self.chosen = tuple(chosen)

    def _alike(self, number: int) -> tuple[str, int]:
        ambiguity = self.ambiguities[number]
        return _pattern(ambiguity.place), len(ambiguity.choices)

    def _is_confirmed(self, number: int) -> bool:
        """Whether the last run reproduces what decided an alike ambiguity, or a module around all that is ambiguous."""
        ambiguity = self.ambiguities[number]
        start = self._start(ambiguity.place)
        decisive = self.evidence.get(_pattern(ambiguity.place))
        ahead = range(start, len(self.tensors))
        found = [place for place in ahead if _pattern(self.seen[place].module) == decisive][:1]
        around = self._around(ambiguity)
        confirmed = any(
            places and all(self._says_same(place) for place in places)
            for places in (found, [i for i in ahead if self.seen[i].module == around])
        )
        if confirmed:
            self.decided.add(number)
        return confirmed

    def _says_same(self, place: int) -> bool:
        tensor = self.tensors[place]
        return not tensor.is_constant and self._is_reproduced(tensor)

    def _around(self, ambiguity: Ambiguity) -> str | None:
        """The nearest module around all ambiguous weights that returned something."""
        returned = {seen.module for seen in self.seen}
        names = {name for choice in ambiguity.choices for entry in choice for name in entry.torch}
        holders = [ambiguity.place, *(name.rpartition(".")[0] for name in names)]
        around = (set(ancestors(path, SEPARATORS["torch"])) for path in holders)
        common = set.intersection(*around) & returned
        return max(common, key=len, default=None)

    def _start(self, place: str) -> int:
        """The number of the first tensor that a module, one within it, or else one around it returned."""
        for path in (place, *ancestors(place, SEPARATORS["torch"])):
            for number, seen in enumerate(self.seen):
                if seen.module == path or seen.module.startswith(f"{path}."):
                    return number
        return 0


def _pattern(path: str) -> str:
    """A path with any numbers: equal for the same module of equal layers."""
    return re.sub(r"\d+", "#", path)
