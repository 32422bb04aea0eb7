"""Tables and constants that both builders make, and that differ: part of the models, not weights to be copied.

Torch's values are loaded into what is a weight, and into what both sides draw at random, and draw alike. Of a disputed
entry of the mapping running tells what it is: where the models return the same only with torch's values, the port's own
are wrong; where they return the same with Keras's own, the two are no counterparts, or it makes no difference. Docs:
docs/pairs.md.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from parity.pairs.activations.modules import Surveyed
from parity.pairs.extent import few
from parity.pairs.untrained.built import Built
from parity.pairs.untrained.random_tables import DISTRIBUTION, LARGEST, USED, Draw, Judge, RandomTable, Sides
from parity.pairs.weights.links import Ambiguity
from parity.pairs.weights.propose import Proposal
from parity.pairs.weights.runs import Resolved, Trials, agrees
from parity.trace.mapping import Entry, Mapping, Partial, Unlike

MOST_RUNS = 6  # disputed entries that are tried one by one
FEW = 2  # further seeds that show what is random at all
LOADED = "torch's values were loaded"
ROUNDED = "as float32 rounds statistics of the same data"
FREE = f"the scale makes no difference, and {LOADED}"
Solve = Callable[[Proposal], Resolved]  # decides the ambiguities of a proposal by running
KEPT = "each side kept its own; to load torch's, say so in [[weights]]"


class Disputed(NamedTuple):
    """An entry of the mapping. `unfilled`: Keras's builder left nothing but 0 or 1 there."""

    entry: Entry
    unlike: Unlike
    unfilled: bool = False
    # What is random in it both sides draw alike; Keras keeps its own values only where it computes others.
    partial: Partial | None = None
    # What is random in it both sides draw alike but for the scale; torch's values at Keras's.
    scaled: Partial | None = None


class Found(NamedTuple):
    """What is disputed of a mapping, and what was loaded and is to be told."""

    disputed: list[Disputed]
    assumptions: list[str]
    # By torch's name, what training changes and both builders begin with different values, which no seed changes.
    # Whether the port is trained from there, or loads torch's, nobody says.
    begun: dict[str, Unlike] = {}


Look = Callable[[Mapping], Found]


def find(mapping: Mapping, sides: Sides, built: Built, draw: Draw, of_scripts: bool = False) -> Found:
    """Return the disputed entries among those that no rule of the user's gives.

    `draw` builds both models with further seeds: a few if any values differ, many if any table among them is random.
    What begins as a copy of trained weights on both sides is no constant, but begins with those of torch on both. So
    do the frozen weights `of_scripts`, as all weights that these begin with.
    """
    constants = [entry for entry in mapping.entries if _is_constant(entry, sides) and built.has(entry)]
    unlike = [(entry, how) for entry in constants if (how := built.unlike(entry))]
    told = [f"{how.said}: {ROUNDED}, and {LOADED}" for entry, how in unlike if entry.by == "value"]
    unlike = [(entry, how) for entry, how in unlike if entry.by != "value"]
    if not unlike:
        return Found([], told)
    judge = Judge(sides, built, draw(FEW, []))
    tables = [entry for entry, _ in unlike if judge.is_random_table(entry)]
    large = [entry for entry in tables if judge.size(entry) > LARGEST]
    tables = [entry for entry in tables if entry not in large]
    draws = draw(*judge.wanted(tables)) if tables else None
    disputed, weights, frozen = [], [], []
    begun: dict[str, Unlike] = {}
    for entry, how in unlike:
        if judge.is_state(entry):
            told.append(f"{how.said}: training changes it, and {LOADED}")
            begun |= {} if judge.is_random(entry) else dict.fromkeys(entry.torch, how)
        elif entry in large:
            told.append(f"{USED} {few(entry.torch)}, random, and too large to be drawn many times: not compared")
        elif draws and entry in tables:
            table = RandomTable(entry, draws)
            disputes = _disputed_table(table, built, sum(len(each.keras) for each in tables))
            disputed += disputes
            told += [table.alike()] if all(each.partial for each in disputes) else []
        elif of_scripts and not judge.is_own(entry):
            frozen += entry.torch
        elif judge.is_disputed(entry):
            disputed.append(Disputed(entry, how, built.is_unfilled(entry)))
        elif judge.is_random(entry):
            weights += entry.torch
    if weights:
        told.append(f"{USED} {few(weights)}: frozen weights, random as layers begin with them, and not compared")
    if frozen:
        told.append(f"{USED} {few(frozen)}: frozen weights, of which each script has its own, and not compared")
    return Found(disputed, told, begun)


def _is_constant(entry: Entry, sides: Sides) -> bool:
    """Return whether an entry maps tensors that neither side trains, statistics and copies of trained weights aside."""
    ours, theirs = sides.weights(entry)
    is_copy = {*entry.torch} <= {*sides.torch.copies} and {*entry.keras} <= {*sides.keras.copies}
    is_trained = any(one.trainable or one.statistic for one in (*ours, *theirs))
    return entry.by != "rule" and not is_trained and not is_copy


def _disputed_table(table: RandomTable, built: Built, tables: int) -> list[Disputed]:
    """Return how a random table differs, in a list that is empty if it does not: in what is computed, or else drawn."""
    computed, drawn = built.unlike(table.entry, table.masks), table.unlike(tables)
    if computed:
        return [Disputed(table.entry, computed, partial=None if drawn else table.partial(built))]
    return [Disputed(table.entry, drawn, scaled=table.scaled(tables))] if drawn else []


def resolved(proposal: Proposal, look: Look, solve: Solve, trials: Trials) -> Resolved:
    """Resolve a proposal, and decide by running what becomes of the disputed entries that `look` finds then."""
    loaded = solve(proposal)
    found = look(loaded.mapping)
    if found.disputed:
        loaded = _decided(proposal, found.disputed, loaded, solve, trials)
    told = [*loaded.mapping.assumptions, *found.assumptions]
    unfilled = loaded.mapping.unfilled | found.begun
    return loaded._replace(mapping=replace(loaded.mapping, assumptions=told, unfilled=unfilled))


def _decided(proposal: Proposal, disputed: list[Disputed], loaded: Resolved, solve: Solve, trials: Trials) -> Resolved:
    """Return the resolved mapping, given the one with torch's values in all that is disputed (`loaded`).

    Keras's model runs with torch's values, and with its own.
    """

    def matters(each: Disputed) -> bool:
        """Return whether Keras's model returns something else with its own values than with torch's."""
        own = trials.run(_removed(loaded.mapping, [each])).values
        return not agrees(Surveyed(trials.torch.survey, loaded.keras.values), own)

    if trials.agree(loaded.keras.values):
        scaled = [(each, _removed(loaded.mapping, [each._replace(partial=each.scaled)])) for each in disputed]
        # Those of which Keras's model returns the same with torch's random values at Keras's scale.
        free = [each for each, mapping in scaled if each.scaled and trials.agree_with(mapping)]
        disputed = [each for each in disputed if each not in free]
        # Those without which Keras's model returns something else; of many, all of them or none.
        groups = [disputed] if len(disputed) > MOST_RUNS else [[each] for each in disputed]
        wrong = [each for group in groups if not trials.agree_with(_removed(loaded.mapping, group)) for each in group]
        harmless = [each for each in disputed if each not in wrong]
        own = [each for each in wrong if not each.unfilled]
        unfilled = decisive = [each for each in wrong if each.unfilled]
        mapping = _removed(_kept(_told(loaded.mapping, free, FREE), harmless), own)
    else:
        kept = solve(_without(proposal, disputed))
        if trials.agree(kept.keras.values):
            return kept._replace(mapping=_kept(kept.mapping, disputed))
        # What Keras's builder leaves at 0 or 1 is given torch's values; of the rest counts what is not drawn alike.
        unfilled = [each for each in disputed if each.unfilled]
        decisive = list(filter(matters, unfilled))
        others = [each for each in disputed if not each.unfilled]
        own = [each for each in others if each.unlike.cause == DISTRIBUTION and matters(each)]
        mapping = _kept(_removed(loaded.mapping, own), [each for each in others if each not in own])
    mapping = replace(
        _told(mapping, unfilled, LOADED), unlike=mapping.unlike | _by_name(own), unfilled=_by_name(decisive)
    )
    return loaded._replace(mapping=mapping)


def _by_name(disputed: Iterable[Disputed]) -> dict[str, Unlike]:
    return {name: each.unlike for each in disputed for name in each.entry.torch}


def _kept(mapping: Mapping, disputed: Sequence[Disputed]) -> Mapping:
    """Return the mapping without their entries, and with a sentence for each of them."""
    return _told(_removed(mapping, disputed), disputed, KEPT)


def _told(mapping: Mapping, disputed: Iterable[Disputed], outcome: str) -> Mapping:
    """Return the mapping with a sentence for each of them that says what became of it."""
    sentences = [f"{each.unlike.said}: {outcome}" for each in disputed]
    return replace(mapping, assumptions=[*mapping.assumptions, *sentences])


def _removed(mapping: Mapping, disputed: Sequence[Disputed]) -> Mapping:
    """Return the mapping without their entries: both sides keep what their builders gave, except for what is random."""
    variables = {name for each in disputed for name in each.entry.keras}
    gone = [entry for entry in mapping.entries if variables.intersection(entry.keras)]
    names = [name for entry in gone for name in (*entry.torch, *entry.keras)]
    entries = [entry for entry in mapping.entries if entry not in gone]
    partial = [*mapping.partial, *(each.partial for each in disputed if each.partial)]
    return replace(mapping, entries=entries, constants=[*mapping.constants, *names], partial=partial)


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
