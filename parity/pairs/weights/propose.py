"""Which weights of Keras hold which of torch's: first the user's rules, then what shapes, kinds, order and names say.

What several ways are possible for, and names and order do not resolve, is an ambiguity: its first choice is in the
mapping, and running both sides decides (parity.pairs.resolve).
"""

import math
from collections.abc import Iterator

import msgspec
from msgspec.structs import replace

from parity.config.pair import Pair
from parity.pairs.weights import ambiguous, leftovers, names
from parity.pairs.weights.align import Placed, align
from parity.pairs.weights.built import Built
from parity.pairs.weights.families import Images
from parity.pairs.weights.named import named
from parity.pairs.weights.rules import ignored, ruled
from parity.pairs.weights.units import execution, one_bias, units
from parity.trace.mapping import Entry, Mapping, Unplaced, counts
from parity.trace.survey import Survey, Weight

CANDIDATES = 5  # named for a weight that nothing was found for
NOTHING = Built()
ONE_BIAS = "PyTorch's GRU is one with reset_after=True: this one has reset_after=False"


class Ambiguity(msgspec.Struct, frozen=True, kw_only=True):
    """Weights of the module at `place` (torch's). Each of the choices replaces the entries of its Keras variables.

    `counted`: they are siblings, and the first choice puts together what both sides create and name in this order.
    """

    place: str
    choices: list[list[Entry]]
    counted: bool = False


class Proposal(msgspec.Struct, frozen=True, kw_only=True):
    """A mapping of weights, and where it could be another.

    `ambiguities` in the order of execution; the first choice of each is in the mapping. `named`: what names decide.
    """

    mapping: Mapping
    ambiguities: list[Ambiguity]
    named: list[Ambiguity] = []


def propose(torch: Survey, keras: Survey, pair: Pair, built: Built = NOTHING) -> Proposal:
    """Place as many weights as can be. `built`: the builders' values. Raises UsageError for rules that do not fit."""
    skipped = [ignored(torch, pair.ignore.torch), ignored(keras, pair.ignore.keras)]
    rules = ruled(torch, keras, pair.weights)
    here = units(torch, {*skipped[0], *(name for rule in rules for name in rule.entry.torch)})
    there = units(keras, {*skipped[1], *(name for rule in rules for name in rule.entry.keras)})
    image = Images(torch)
    placed = named(align(here, there, image), image)
    rest = leftovers.single(here, there, placed)
    rest += leftovers.buffers(torch, there, [*placed, *rest], skipped[0], built)
    doubtful = [ambiguous.AmbiguousUnits(rule.module, rule.choices) for rule in rules if rule.choices]
    doubtful += ambiguous.ambiguities(placed, image)
    doubtful += [
        ambiguous.AmbiguousUnits(each.link.torch[0].module, each.link.ambiguities[0])
        for each in rest
        if each.link.ambiguities
    ]
    found = [entry for one in [*placed, *rest] for entry in _marked(one, placed)]
    entries = leftovers.copied([rule.entry for rule in rules] + found)
    order = execution(torch)
    ambiguities = [
        Ambiguity(place=one.place, choices=leftovers.free(one.choices, found), counted=one.counted) for one in doubtful
    ]
    ambiguities.sort(key=lambda ambiguity: order.get(ambiguity.place, (0, 0)))
    told = [Ambiguity(place=one.place, choices=one.choices) for one in ambiguous.told_apart(placed, image)]
    return Proposal(mapping=_mapping(torch, keras, entries, skipped), ambiguities=ambiguities, named=told)


def _marked(one: Placed, placed: list[Placed]) -> Iterator[Entry]:
    """The entries of a link, with how they were found."""
    here, there = one.link.torch[0], one.link.keras[0]
    if names.alike(here.label, there.label) or names.part(here.label) == names.part(there.label) != "":
        by = "name"
    else:
        same = [other for other in placed if other.link.torch[0].signature == here.signature]
        by = "shape" if len(same) == 1 else "order"
    for entry in one.link.entries:
        yield replace(entry, by=by)


def _mapping(torch: Survey, keras: Survey, entries: list[Entry], skipped: list[list[str]]) -> Mapping:
    """With what has no counterpart, and who could be it."""
    number = {weight.name: place for place, weight in enumerate(torch.weights)}
    entries = sorted(entries, key=lambda entry: number.get(entry.torch[0], len(number)))
    used = {name for entry in entries for name in entry.torch}, {name for entry in entries for name in entry.keras}
    left = [
        [weight for weight in survey.weights if weight.name not in used[side] and weight.name not in skipped[side]]
        for side, survey in enumerate((torch, keras))
    ]
    free = [weight for weight in left[0] if weight.constant]
    evolving = [weight for weight in free if weight.name in torch.rehearsal.changing]
    changing = [weight.name for weight in evolving if weight.name not in torch.rehearsal.counting]
    left[0] = [weight for weight in left[0] if not weight.constant]
    fixed = [weight.name for weight in left[1] if _is_fixed(weight, keras, left[0])]
    left[1] = [weight for weight in left[1] if weight.name not in fixed]
    return Mapping(
        entries=entries,
        changing=changing,
        unplaced=[*_unplaced(torch, left[0], left[1], keras), *_unplaced(keras, left[1], left[0], torch)],
        constants=[*(weight.name for weight in free if weight.name not in changing), *fixed],
        ignored=skipped[0] + skipped[1],
        assumptions=[counts(weight.name) for weight in evolving if weight.name not in changing],
    )


def _is_fixed(weight: Weight, keras: Survey, missing: list[Weight]) -> bool:
    """Whether a Keras variable is a table of its own: it never changes, and is as large as none that torch misses."""
    is_own = weight.fixed and weight.name not in keras.rehearsal.changing
    return is_own and not any(math.prod(one.shape) == math.prod(weight.shape) for one in missing)


def _unplaced(survey: Survey, weights: list[Weight], others: list[Weight], other: Survey) -> Iterator[Unplaced]:
    """The other side's weights with as many elements are candidates: those that have no counterpart before others."""
    for weight in weights:
        size = math.prod(weight.shape)
        rest = [one for one in other.weights if one not in others]
        near, rest = (sorted(some, key=lambda one: -names.alike(weight.name, one.name)) for some in (others, rest))
        note = ONE_BIAS if weight.role == "bias" and one_bias(survey, weight.module) else ""
        candidates = [one.name for one in [*near, *rest] if math.prod(one.shape) == size][:CANDIDATES]
        yield Unplaced(side=survey.side, name=weight.name, shape=weight.shape, candidates=candidates, note=note)
