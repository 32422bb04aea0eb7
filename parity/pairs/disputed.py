"""Tables and constants that both builders compute, and that differ: part of the models, not weights to be copied.

Torch's values are loaded into what is a weight. Of a disputed entry of the mapping running tells what it is: where the
models return the same only with torch's values, the port's own are wrong; where they return the same with Keras's own,
the two are no counterparts, or it makes no difference. Docs: docs/pairs.md.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple

from msgspec.structs import replace

from parity.pairs.built import Built
from parity.pairs.reproduced import Values, agrees
from parity.pairs.resolve import Resolved, Run
from parity.pairs.weights.links import Ambiguity
from parity.pairs.weights.propose import Proposal
from parity.trace.mapping import Entry, Mapping, Unlike
from parity.trace.survey import Survey, Weight

MOST_RUNS = 6  # disputed entries that are tried one by one
LOADED = "torch's values were loaded"
Solve = Callable[[Proposal], Resolved]  # decides the ambiguities of a proposal by running
Agrees = Callable[[Values, Values], bool]  # whether two runs of models returned the same
KEPT = "each side kept its own; to load torch's, say so in [[weights]]"


class Disputed(NamedTuple):
    """An entry of the mapping. `unfilled`: Keras's builder left nothing but 0 or 1 there."""

    entry: Entry
    unlike: Unlike
    unfilled: bool


class Found(NamedTuple):
    """What is disputed of a mapping, and what was loaded and is to be told."""

    disputed: list[Disputed]
    assumptions: list[str]


class Sides(NamedTuple):
    """Both surveys, with the weights by name."""

    torch: Survey
    keras: Survey

    def weights(self, entry: Entry) -> tuple[list[Weight], list[Weight]]:
        """Return the tensors of an entry: torch's and Keras's."""
        ours, theirs = ({weight.name: weight for weight in side.weights} for side in self)
        return [ours[name] for name in entry.torch], [theirs[name] for name in entry.keras]


def find(mapping: Mapping, sides: Sides, built: Built, drawn: Callable[[], set[str]]) -> Found:
    """Return the disputed entries among those that no rule of the user's gives.

    `drawn`: the names of what Keras's builder draws at random; asked only if any values differ.
    """
    unlike = [(entry, how) for entry in mapping.entries if _is_constant(entry, sides) and (how := _how(entry, built))]
    if not unlike:
        return Found([], [])
    judge = _Judge(sides, built, drawn())
    disputed = [Disputed(*one, built.is_unfilled(one[0])) for one in unlike if judge.is_disputed(one[0])]
    told = [f"{how.said}: {why}, and {LOADED}" for entry, how in unlike if (why := judge.assumed(entry))]
    return Found(disputed, told)


def _is_constant(entry: Entry, sides: Sides) -> bool:
    """Return whether an entry maps tensors that neither side trains, statistics aside."""
    ours, theirs = sides.weights(entry)
    return entry.by != "rule" and not any(one.trainable or one.statistic for one in (*ours, *theirs))


def _how(entry: Entry, built: Built) -> Unlike | None:
    return built.unlike(entry) if built.has(entry) else None


class _Judge:
    """The decision on an entry whose values differ: disputed, or assumed to be torch's."""

    def __init__(self, sides: Sides, built: Built, drawn: set[str]) -> None:
        self.sides, self.built, self.drawn = sides, built, drawn
        self.drawing = {weight.module for weight in sides.keras.weights if weight.name in drawn}

    def is_disputed(self, entry: Entry) -> bool:
        """Return whether the two builders compute an entry's values differently.

        They do not where training changes the values (state), or where Keras draws them. What a frozen layer holds
        counts only if neither side draws it, or leaves it to be filled.
        """
        if self._is_state(entry) or self._is_drawn(entry):
            return False
        if self._is_own(entry):
            return True
        in_drawn_layer = any(weight.module in self.drawing for weight in self.sides.weights(entry)[1])
        return not (in_drawn_layer or self.built.is_unfilled(entry) or set(entry.torch) & set(self.sides.torch.drawn))

    def assumed(self, entry: Entry) -> str:
        """Return why torch's values are loaded although Keras's differ, if the report is to say so; else ""."""
        if self._is_drawn(entry):
            is_told = self._is_own(entry) and not self._is_state(entry)
            return "keras draws its own at random" if is_told else ""
        return "training changes it" if self._is_state(entry) else ""

    def _is_state(self, entry: Entry) -> bool:
        return bool(set(entry.torch) & set(self.sides.torch.rehearsal.changing))

    def _is_drawn(self, entry: Entry) -> bool:
        return bool(self.drawn.intersection(entry.keras))

    def _is_own(self, entry: Entry) -> bool:
        """Return whether it is a buffer of torch's or made untrained in Keras, and not only frozen."""
        ours, theirs = self.sides.weights(entry)
        return any(one.constant for one in ours) or any(one.fixed for one in theirs)


def resolved(proposal: Proposal, found: Found, sides: Sides, torch_values: Values, solve: Solve, run: Run) -> Resolved:
    """Resolve a proposal, and decide by running what becomes of its disputed entries."""
    loaded = solve(proposal)
    if found.disputed:
        same = partial(agrees, sides.torch)
        loaded = _Deciding(proposal, found.disputed, solve, run, torch_values, same).decided(loaded)
    told = [*loaded.mapping.assumptions, *found.assumptions]
    return loaded._replace(mapping=replace(loaded.mapping, assumptions=told))


class _Deciding:
    """Runs Keras's model with torch's values, and with its own, in what is disputed."""

    def __init__(
        self, proposal: Proposal, disputed: list[Disputed], solve: Solve, run: Run, torch: Values, same: Agrees
    ) -> None:
        self.proposal, self.disputed = proposal, disputed
        self.solve, self.run, self.torch, self.same = solve, run, torch, same

    def decided(self, loaded: Resolved) -> Resolved:
        """Return the resolved mapping, given the one with torch's values in all that is disputed (`loaded`)."""
        if self.same(self.torch, loaded.values):
            wrong = self._decisive(loaded.mapping)
            harmless = [each for each in self.disputed if each not in wrong]
            return loaded._replace(mapping=_differing(_kept(loaded.mapping, harmless), wrong))
        kept = self.solve(_without(self.proposal, self.disputed))
        if self.same(self.torch, kept.values):
            return kept._replace(mapping=_kept(kept.mapping, self.disputed))
        own, unfilled = _by_kind(self.disputed)
        matter = [each for each in unfilled if self._matters(each, loaded)]
        return loaded._replace(mapping=_loaded(_kept(loaded.mapping, own), unfilled, matter))

    def _matters(self, disputed: Disputed, loaded: Resolved) -> bool:
        """Return whether Keras's model returns something else with its own values than with torch's."""
        return not self.same(loaded.values, self.run(_removed(loaded.mapping, [disputed]))[1])

    def _decisive(self, mapping: Mapping) -> list[Disputed]:
        """Return those without which Keras's model returns something else."""
        if len(self.disputed) > MOST_RUNS:
            return [] if self._agrees_without(mapping, self.disputed) else self.disputed
        return [each for each in self.disputed if not self._agrees_without(mapping, [each])]

    def _agrees_without(self, mapping: Mapping, disputed: Sequence[Disputed]) -> bool:
        return self.same(self.torch, self.run(_removed(mapping, disputed))[1])


def _differing(mapping: Mapping, wrong: Sequence[Disputed]) -> Mapping:
    """Return the mapping where these decide whether the models are equal: what Keras computes stays its own."""
    own, unfilled = _by_kind(wrong)
    return replace(_loaded(_removed(mapping, own), unfilled, unfilled), unlike=_by_name(own))


def _by_kind(disputed: Sequence[Disputed]) -> tuple[list[Disputed], list[Disputed]]:
    """Return those that Keras's builder computes, and those that it leaves at 0 or 1."""
    own, unfilled = ([each for each in disputed if each.unfilled == is_so] for is_so in (False, True))
    return own, unfilled


def _loaded(mapping: Mapping, unfilled: Sequence[Disputed], decisive: Sequence[Disputed]) -> Mapping:
    """Return the mapping with what Keras's builder leaves at 0 or 1, which is given torch's values."""
    told = [f"{each.unlike.said}: {LOADED}" for each in unfilled]
    return replace(mapping, assumptions=[*mapping.assumptions, *told], unfilled=_by_name(decisive))


def _by_name(disputed: Iterable[Disputed]) -> dict[str, Unlike]:
    return {name: each.unlike for each in disputed for name in each.entry.torch}


def _kept(mapping: Mapping, disputed: Sequence[Disputed]) -> Mapping:
    """Return the mapping without their entries, and with a sentence for each of them."""
    told = [f"{each.unlike.said}: {KEPT}" for each in disputed]
    return replace(_removed(mapping, disputed), assumptions=[*mapping.assumptions, *told])


def _removed(mapping: Mapping, disputed: Sequence[Disputed]) -> Mapping:
    """Return the mapping without their entries: both sides keep what their builders gave."""
    variables = {name for each in disputed for name in each.entry.keras}
    gone = [entry for entry in mapping.entries if variables.intersection(entry.keras)]
    names = [name for entry in gone for name in (*entry.torch, *entry.keras)]
    entries = [entry for entry in mapping.entries if entry not in gone]
    return replace(mapping, entries=entries, constants=[*mapping.constants, *names])


def _without(proposal: Proposal, disputed: Sequence[Disputed]) -> Proposal:
    """Return the proposal without their entries, and without their ambiguities."""
    variables = {name for each in disputed for name in each.entry.keras}

    def others(ambiguities: Iterable[Ambiguity]) -> list[Ambiguity]:
        return [each for each in ambiguities if not any(variables.intersection(e.keras) for e in each.choices[0])]

    return replace(
        proposal,
        mapping=_removed(proposal.mapping, disputed),
        ambiguities=others(proposal.ambiguities),
        named=others(proposal.named),
    )
