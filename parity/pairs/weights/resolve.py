"""Decide what names, shapes and order could not tell about the weights, by running.

Wherever the weight mapping leaves a choice, Keras's model runs with each alternative. Right is the one with which both
models return the same, or else the one with which Keras's reproduces most of what torch's modules returned behind all
that is ambiguous. What an ambiguous module itself returns proves nothing where several get the same input: each weight
gives its own tensor, wherever it is put. A run costs seconds: so what won at one layer is tried at once at all layers
like it, and a layer that is reproduced already is not tried at all.
"""

import heapq
import itertools

from msgspec.structs import replace

from parity.pairs.activations.counterparts import is_output
from parity.pairs.activations.modules import SEPARATORS, ancestors
from parity.pairs.activations.values import CLEARLY, CLOSE, SAME, Tensor, fit, sampled_distances, tensor
from parity.pairs.weights.layouts import MADE
from parity.pairs.weights.links import Ambiguity
from parity.pairs.weights.names import without_numbers
from parity.pairs.weights.propose import Proposal
from parity.pairs.weights.runs import Chosen, Reproduced, Resolved, Trials, exchanged
from parity.trace.keys import MODEL
from parity.trace.mapping import Mapping

MOST_RUNS = 64
MOST_TOGETHER = 12  # combinations that are tried where one tensor depends on several ambiguities
LOOK_AHEAD = 32  # how many of torch's tensors, from an ambiguity's module on, are looked for among Keras's
CANDIDATES = 3  # how many of Keras's tensors are compared in full, after a sample has picked the nearest


def resolve(proposal: Proposal, trials: Trials) -> Resolved:
    """Decide the ambiguities of a proposal by running Keras's model.

    What cannot be decided stays as proposed, or takes the choice that won at a layer whose path differs only in
    numbers.
    """
    return _Resolution(proposal, trials.up_to(MOST_RUNS)).resolved()


class _Resolution:
    """Decides ambiguities in the order of execution; `chosen`: the choice for each, `ran`: those of the last run."""

    def __init__(self, proposal: Proposal, trials: Trials) -> None:
        self.mapping, self.trials = proposal.mapping, trials
        torch, values = trials.torch
        self.seen = [seen for seen in torch.outputs if seen.key in values]
        self.tensors = [tensor(values[seen.key]) for seen in self.seen]
        self.ambiguities = sorted(proposal.ambiguities, key=lambda ambiguity: self._start(ambiguity.place))
        self.chosen: Chosen = (0,) * len(self.ambiguities)
        self.decided: set[int] = set()
        self.evidence: dict[str, str] = {}  # path pattern of an ambiguous module -> that of the module that decided it
        self.hopeless: set[str] = set()  # path patterns of modules where running told nothing
        self.distances_by_choice: dict[tuple[Chosen, int], list[float]] = {}
        self.agreed: dict[Chosen, bool] = {}  # whether the models agree with these choices
        self.ran: Chosen | None = None
        self._run_if_changed()

    def resolved(self) -> Resolved:
        """Decide the ambiguities one after the other, until the models agree, and return the result."""
        for number in range(len(self.ambiguities)):
            if self.trials.agree(self.keras.values):
                break
            if number not in self.decided and not self._is_confirmed(number):
                self._decide(number)
                self._run_if_changed()
        if self.trials.agree(self.keras.values):
            self.decided.update(range(len(self.ambiguities)))
        undecided = [each for number, each in enumerate(self.ambiguities) if number not in self.decided]
        places = list(dict.fromkeys(ambiguity.place or MODEL for ambiguity in undecided))
        return Resolved(self._mapping(), self.keras, places, self.ambiguities, self.chosen)

    def _run_if_changed(self) -> None:
        """Run Keras's model with the current choices, unless the last run was with these."""
        if self.ran == self.chosen:
            return
        self.keras = self.trials.run(self._mapping())
        self.ran = self.chosen
        self.reproduced = Reproduced(self.keras.values)

    def _mapping(self) -> Mapping:
        """Return the proposed mapping with the current choices."""
        mapping = self.mapping
        for number, (ambiguity, choice) in enumerate(zip(self.ambiguities, self.chosen, strict=True)):
            by = {"by": "run"} if number in self.decided else {}
            mapping = exchanged(mapping, [replace(entry, **by) for entry in ambiguity.choices[choice]])
        return mapping

    def _decide(self, number: int) -> None:
        """Try an ambiguity's choices alone, then with the next ones: a tensor may depend on several of them."""
        chosen_before, likeliest = self.chosen, self.chosen
        for end in range(number + 1, len(self.ambiguities) + 1):
            group = range(number, end)
            sizes = [range(len(self.ambiguities[i].choices)) for i in group]
            choices = list(itertools.product(*sizes))
            if not self._is_worth_trying(group, len(choices)):
                break
            best = self._best(group, choices)
            self.chosen = chosen_before
            if len(best) == 1:
                self._keep(group, best[0])
                return
            if end == number + 1 and self.chosen[number : number + 1] not in best:
                likeliest = (*self.chosen[:number], *best[0], *self.chosen[end:])
        self.chosen = likeliest
        self.hopeless.add(relative(self.ambiguities[number].place))

    def _is_worth_trying(self, group: range, count: int) -> bool:
        """Return whether a group of ambiguities, with so many combinations of choices, is worth the runs."""
        first, last = (self._start(self.ambiguities[i].place) for i in (group[0], group[-1]))
        too_much_together = len(group) > 1 and (
            count > MOST_TOGETHER
            or last - first >= LOOK_AHEAD
            or relative(self.ambiguities[group[0]].place) in self.hopeless
        )
        return not too_much_together and self.trials.runs + count < self.trials.most

    def _best(self, group: range, choices: list[Chosen]) -> list[Chosen]:
        """Return the choices of which the evidence is best, in their order: a single one if it tells."""
        start = self._start(self.ambiguities[group[0]].place)
        current = self.chosen[group.start : group.stop]
        ordered = sorted(choices, key=lambda chosen: chosen != current)  # the current choice first: it costs no run
        distances = {}
        for chosen in ordered:
            distances[chosen] = self._tried(group, chosen, start)
            if self.agreed[self.chosen]:
                return [chosen]
        behind = self._behind(group, start)
        for positions, limit in ((behind, SAME), (behind, CLOSE), (range(len(distances[current])), SAME)):
            best = _nearest({chosen: distances[chosen] for chosen in choices}, positions, limit)
            if len(best) == 1 and positions == behind:  # for layers of the same kind: of which module is what decided?
                columns = zip(*distances.values(), strict=True)
                telling = (i for i, column in enumerate(columns) if any(each > SAME for each in column))
                if (decisive := next((i for i in telling if distances[best[0]][i] <= limit), None)) is not None:
                    place = without_numbers(self.ambiguities[group[0]].place)
                    self.evidence[place] = without_numbers(self.seen[start + decisive].module)
            if len(best) < len(choices):
                return best
        return choices

    def _behind(self, group: range, start: int) -> range:
        """Return the numbers of the tensors, from `start` on, that follow all modules whose counterparts are open."""
        modules = {module for i in group for module in _exchangeable(self.ambiguities[i])}
        called = [number for number, seen in enumerate(self.seen) if seen.module in modules]
        first = {self.seen[number].module: number for number in reversed(called)}
        window = range(start, min(start + LOOK_AHEAD, len(self.tensors)))
        return range(max((number + 1 - start for number in first.values()), default=0), len(window))

    def _tried(self, group: range, chosen: Chosen, start: int) -> list[float]:
        """Return how far Keras is from torch's tensors, from `start` on, with these choices for a group."""
        self.chosen = (*self.chosen[: group.start], *chosen, *self.chosen[group.stop :])
        if (self.chosen, start) not in self.distances_by_choice:
            self._run_if_changed()
            self.agreed[self.chosen] = self.trials.agree(self.keras.values)
            window = range(start, min(start + LOOK_AHEAD, len(self.tensors)))
            self.distances_by_choice[self.chosen, start] = [self._distance(position) for position in window]
        return self.distances_by_choice[self.chosen, start]

    def _distance(self, position: int) -> float:
        """Return the distance of one of torch's tensors to the nearest tensor of Keras's last run.

        A tensor of one number everywhere is no evidence and has distance 0 whatever is chosen. The outputs of the
        whole model are compared by key: of two outputs that are exchanged, each would be found somewhere.
        """
        torch, key = self.tensors[position], self.seen[position].key
        if torch.is_constant:
            return 0.0
        if is_output(key) and key in self.keras.values:
            fitted = fit(torch, Tensor(self.keras.values[key]))
            return fitted.distance if fitted else float("inf")
        if self.reproduced.has(torch):
            return 0.0
        same_size = self.reproduced.by_size.get(torch.size, [])
        sampled = sampled_distances(torch, same_size)
        fits = [
            fit(torch, same_size[position])
            for position in heapq.nsmallest(CANDIDATES, range(len(same_size)), sampled.__getitem__)
        ]
        return min((fitted.distance for fitted in fits if fitted), default=float("inf"))

    def _keep(self, group: range, winner: Chosen) -> None:
        """Choose for good in this group, and for now at other ambiguities of the same kind."""
        chosen = list(self.chosen)
        kinds = [(relative(ambiguity.place), len(ambiguity.choices)) for ambiguity in self.ambiguities]
        for number, choice in zip(group, winner, strict=True):
            self.decided.add(number)
            chosen[number] = choice
            for other, kind in enumerate(kinds):
                if other not in (*self.decided, *group) and kind == kinds[number]:
                    chosen[other] = choice
        self.chosen = tuple(chosen)

    def _is_confirmed(self, number: int) -> bool:
        """Return whether the last run confirms the current choice of an ambiguity.

        It does if it reproduces the tensor that decided an ambiguity of the same kind, or a module around all that is
        ambiguous.
        """
        ambiguity = self.ambiguities[number]
        start = self._start(ambiguity.place)
        decisive = self.evidence.get(without_numbers(ambiguity.place))
        around = self._around(ambiguity)
        following = range(start, len(self.tensors))
        of_decisive = (i for i in following if without_numbers(self.seen[i].module) == decisive)
        of_around = (i for i in following if self.seen[i].module == around)
        confirmed = any(
            positions and all(self.reproduced.has(self.tensors[position]) for position in positions)
            for positions in (list(of_decisive)[:1], list(of_around))
        )
        if confirmed:
            self.decided.add(number)
        return confirmed

    def _around(self, ambiguity: Ambiguity) -> str | None:
        """Return the nearest module that contains all ambiguous weights and returned something."""
        returned = {seen.module for seen in self.seen}
        names = {name for choice in ambiguity.choices for entry in choice for name in entry.torch}
        holders = [ambiguity.place, *(name.rpartition(".")[0] for name in names)]
        ancestors_of_holders = (set(ancestors(path, SEPARATORS["torch"])) for path in holders)
        common = set.intersection(*ancestors_of_holders) & returned
        return max(common, key=len, default=None)

    def _start(self, module_path: str) -> int:
        """Return the number of the first tensor that a module, or else one within or around it, returned."""
        for path in (module_path, *ancestors(module_path, SEPARATORS["torch"])):
            for number, seen in enumerate(self.seen):
                if seen.module == path or seen.module.startswith(f"{path}."):
                    return number
        return 0


def _exchangeable(ambiguity: Ambiguity) -> set[str]:
    """Return torch's modules whose own outputs tell nothing, as the choices give them different counterparts.

    Those only moved otherwise are left out, but for those of whose outputs an image is made: Keras's order is another.
    """
    entries = [entry for choice in ambiguity.choices for entry in choice]
    if all(pairs == ambiguity.pairs[0] for pairs in ambiguity.pairs):
        entries = [entry for entry in entries if entry.rearrange.startswith(MADE)]
    return {name.rpartition(".")[0] for entry in entries for name in entry.torch}


def relative(path: str) -> str:
    """Return the last two names of a path without numbers: equal layers of two towers become equal."""
    return ".".join(without_numbers(path).split(".")[-2:])


def _nearest(distances: dict[Chosen, list[float]], positions: range, limit: float) -> list[Chosen]:
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
