"""Propose a weight mapping: first by the user's rules, then by what shapes, kinds, order and names say.

Where several ways are possible, and names and order do not decide, the mapping holds the first choice of an
ambiguity, and running both sides decides (parity.pairs.resolve).
"""

import math
from collections.abc import Iterator

import msgspec
from msgspec.structs import replace

from parity.config.pair import Pair
from parity.pairs.weights import ambiguous, leftovers, names
from parity.pairs.weights.align import PlacedLink, align
from parity.pairs.weights.built import Built
from parity.pairs.weights.families import Images
from parity.pairs.weights.named import named
from parity.pairs.weights.rules import ignored, ruled
from parity.pairs.weights.units import execution, one_bias, units
from parity.trace.mapping import Entry, Mapping, Unplaced, counts
from parity.trace.survey import Survey, Weight

CANDIDATES = 5  # at most so many are listed for a weight without a counterpart
NOTHING = Built()
ONE_BIAS = "PyTorch's GRU computes what Keras's does with reset_after=True; this layer has reset_after=False"


class Ambiguity(msgspec.Struct, frozen=True, kw_only=True):
    """Weights of torch's module at `place` that can be mapped in several ways.

    Each choice replaces the entries of the same Keras variables. `counted` says that the weights are siblings', and
    that the first choice pairs them in the order in which both sides create them.
    """

    place: str
    choices: list[list[Entry]]
    counted: bool = False


class Proposal(msgspec.Struct, frozen=True, kw_only=True):
    """A weight mapping, and where it could be another.

    `ambiguities` are in the order of execution; the mapping holds the first choice of each. `named` are those that
    names decide.
    """

    mapping: Mapping
    ambiguities: list[Ambiguity]
    named: list[Ambiguity] = []


def propose(torch: Survey, keras: Survey, pair: Pair, built: Built = NOTHING) -> Proposal:
    """Place as many weights as possible; `built` holds the values that the builders gave.

    Raises UsageError for rules that do not fit.
    """
    skipped = [ignored(torch, pair.ignore.torch), ignored(keras, pair.ignore.keras)]
    rules = ruled(torch, keras, pair.weights)
    torch_units = units(torch, {*skipped[0], *(name for rule in rules for name in rule.entry.torch)})
    keras_units = units(keras, {*skipped[1], *(name for rule in rules for name in rule.entry.keras)})
    image = Images(torch)
    placed = named(align(torch_units, keras_units, image), image)
    rest = leftovers.align_single_weights(torch_units, keras_units, placed)
    rest += leftovers.buffers(torch, keras_units, [*placed, *rest], skipped[0], built)
    ambiguous_units = [ambiguous.AmbiguousUnits(rule.module, rule.choices) for rule in rules if rule.choices]
    ambiguous_units += ambiguous.ambiguities(placed, image)
    ambiguous_units += [
        ambiguous.AmbiguousUnits(placed_link.link.torch[0].module, placed_link.link.ambiguities[0])
        for placed_link in rest
        if placed_link.link.ambiguities
    ]
    found_entries = [entry for placed_link in [*placed, *rest] for entry in _entries(placed_link, placed)]
    entries = leftovers.copied([rule.entry for rule in rules] + found_entries)
    order = execution(torch)
    ambiguities = [
        Ambiguity(
            place=choice.place, choices=leftovers.with_copies(choice.choices, found_entries), counted=choice.counted
        )
        for choice in ambiguous_units
    ]
    ambiguities.sort(key=lambda ambiguity: order.get(ambiguity.place, (0, 0)))
    by_names = [
        Ambiguity(place=choice.place, choices=choice.choices) for choice in ambiguous.decided_by_names(placed, image)
    ]
    return Proposal(mapping=_mapping(torch, keras, entries, skipped), ambiguities=ambiguities, named=by_names)


def _entries(placed_link: PlacedLink, placed: list[PlacedLink]) -> Iterator[Entry]:
    """Yield the entries of a link, each with how it was found."""
    torch_unit, keras_unit = placed_link.link.torch[0], placed_link.link.keras[0]
    if (
        names.similarity(torch_unit.label, keras_unit.label)
        or names.part(torch_unit.label) == names.part(keras_unit.label) != ""
    ):
        by = "name"
    else:
        alike = [other for other in placed if other.link.torch[0].signature == torch_unit.signature]
        by = "shape" if len(alike) == 1 else "order"
    for entry in placed_link.link.entries:
        yield replace(entry, by=by)


def _mapping(torch: Survey, keras: Survey, entries: list[Entry], skipped: list[list[str]]) -> Mapping:
    """Return the mapping, with the weights that have no counterpart and candidates for each."""
    position = {weight.name: number for number, weight in enumerate(torch.weights)}
    entries = sorted(entries, key=lambda entry: position.get(entry.torch[0], len(position)))
    used = {name for entry in entries for name in entry.torch}, {name for entry in entries for name in entry.keras}
    unplaced = [
        [weight for weight in survey.weights if weight.name not in used[side] and weight.name not in skipped[side]]
        for side, survey in enumerate((torch, keras))
    ]
    buffers = [weight for weight in unplaced[0] if weight.constant]
    changing_buffers = [weight for weight in buffers if weight.name in torch.rehearsal.changing]
    changing = [weight.name for weight in changing_buffers if weight.name not in torch.rehearsal.counting]
    unplaced[0] = [weight for weight in unplaced[0] if not weight.constant]
    fixed = [weight.name for weight in unplaced[1] if _is_fixed(weight, keras, unplaced[0])]
    unplaced[1] = [weight for weight in unplaced[1] if weight.name not in fixed]
    return Mapping(
        entries=entries,
        changing=changing,
        unplaced=[
            *_unplaced(torch, unplaced[0], unplaced[1], keras),
            *_unplaced(keras, unplaced[1], unplaced[0], torch),
        ],
        constants=[*(weight.name for weight in buffers if weight.name not in changing), *fixed],
        ignored=skipped[0] + skipped[1],
        assumptions=[counts(weight.name) for weight in changing_buffers if weight.name not in changing],
    )


def _is_fixed(weight: Weight, keras: Survey, missing: list[Weight]) -> bool:
    """Return whether a Keras variable is a table of its own, which needs no counterpart.

    It never changes, and no weight that torch still misses has its size.
    """
    is_own = weight.fixed and weight.name not in keras.rehearsal.changing
    return is_own and not any(math.prod(absent.shape) == math.prod(weight.shape) for absent in missing)


def _unplaced(survey: Survey, weights: list[Weight], others: list[Weight], other: Survey) -> Iterator[Unplaced]:
    """Yield the weights without a counterpart, each with candidates.

    Candidates are the other side's weights of the same size, those without a counterpart first.
    """
    for weight in weights:
        size = math.prod(weight.shape)
        matched = [candidate for candidate in other.weights if candidate not in others]
        unmatched, matched = (
            sorted(group, key=lambda candidate: -names.similarity(weight.name, candidate.name))
            for group in (others, matched)
        )
        note = ONE_BIAS if weight.role == "bias" and one_bias(survey, weight.module) else ""
        candidates = [candidate.name for candidate in [*unmatched, *matched] if math.prod(candidate.shape) == size][
            :CANDIDATES
        ]
        yield Unplaced(side=survey.side, name=weight.name, shape=weight.shape, candidates=candidates, note=note)
