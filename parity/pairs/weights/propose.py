"""Propose a weight mapping: first by the user's rules, then by what shapes, kinds, order and names say.

Where several ways are possible, and names and order do not decide, the mapping holds the first choice of an
ambiguity, and running both sides decides (parity.pairs.weights.resolve).

Keras's tables that nothing ever changes need no counterpart, nor do weights that change nothing that is compared: those
that take part in nothing, and zeros which training cannot move. But one of the size of a weight that the other side
uses and misses may be the one that was meant: both are then listed, each as a candidate for the other.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec
from msgspec.structs import replace

from parity.config.pair import Pair
from parity.core.groups import by_key
from parity.pairs.untrained.built import Built
from parity.pairs.weights import equal_shapes, names, rules, statistics
from parity.pairs.weights.align import align, align_buffers, align_single_weights, link_tables
from parity.pairs.weights.links import Ambiguity, Choices, Link, make_link
from parity.pairs.weights.patterns import IDENTITY
from parity.pairs.weights.transfer import planned
from parity.pairs.weights.units import Order, Unit, one_bias, positions, units
from parity.runtime.survey import Survey, Weight
from parity.trace.mapping import Entry, Mapping, Unplaced, counts, keeps

NOTHING = Built()
CANDIDATES = 5  # at most so many are listed for a weight without a counterpart
ONE_BIAS = "PyTorch's GRU computes what Keras's does with reset_after=True; this layer has reset_after=False"


class Proposal(msgspec.Struct, frozen=True, kw_only=True):
    """A weight mapping, and where it could be another.

    `ambiguities` are in the order of execution; the mapping holds the first choice of each. `named` are those that
    names decide. `links` are the units that belong together.
    """

    mapping: Mapping
    ambiguities: list[Ambiguity]
    named: list[Ambiguity] = []
    links: list[Link] = []


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """A way to read two models: the orders in which units are aligned; `exchange` returns links with ends exchanged."""

    torch: Order = "calls"
    keras: Order = "calls"
    exchange: Callable[[list[Link]], list[Link]] = list


FIRST = Reading()


def propose(torch: Survey, keras: Survey, pair: Pair, built: Built = NOTHING, reading: Reading = FIRST) -> Proposal:
    """Place as many weights as possible, given what builders gave. Raises UsageError for rules that do not fit."""
    skipped = [rules.ignored(torch, pair.ignore.torch), rules.ignored(keras, pair.ignore.keras)]
    by_rule = [_moves(rule, torch, keras) for rule in rules.ruled(torch, keras, pair.weights)]
    taken = [{*skipped[0], *(name for moves in by_rule for name in moves[0].torch)}]
    taken += [{*skipped[1], *(name for moves in by_rule for name in moves[0].keras)}]
    torch_units, keras_units = units(torch, taken[0], reading.torch), units(keras, taken[1], reading.keras)
    within = rules.prefixed(torch, keras, pair.weights)
    groups = list(_grouped(torch_units, keras_units, within))
    # Positions are those among all units, not among those of a group.
    ours, theirs = ({unit: number for number, unit in enumerate(side)} for side in (torch_units, keras_units))
    aligned = [
        replace(link, within=number, torch_position=ours[link.torch[0]], keras_position=theirs[link.keras[0]])
        for number, group in enumerate(groups)
        for link in align(*group)
    ]
    links = reading.exchange(equal_shapes.assign_by_names(sorted(aligned, key=lambda link: link.torch_position)))
    rest = [link for group in groups for link in align_single_weights(*group, links)]
    rest += [link for group in groups for link in link_tables(*group, [*links, *rest])]
    rest += align_buffers(torch, keras_units, [*links, *rest], skipped[0], built)
    entries = [entry for link in [*links, *rest] for entry in _entries(link, links)]
    module = {weight.name: weight.module for weight in torch.weights}
    ambiguities = [
        *(
            Ambiguity(place=module[moves[0].torch[0]], choices=[[entry] for entry in moves])
            for moves in by_rule
            if len(moves) > 1
        ),
        *equal_shapes.ambiguities(links),
        *(Ambiguity(place=link.torch[0].module, choices=link.choices) for link in rest if link.choices),
    ]
    order = positions(torch)
    return Proposal(
        mapping=_mapping(torch, keras, _copied([moves[0] for moves in by_rule] + entries), skipped, built),
        ambiguities=sorted(
            (replace(ambiguity, choices=_with_copies(ambiguity.choices, entries)) for ambiguity in ambiguities),
            key=lambda ambiguity: order.get(ambiguity.place, (0, 0)),
        ),
        named=equal_shapes.decided_by_names(links),
        links=links,
    )


def _grouped(
    torch: Sequence[Unit], keras: Sequence[Unit], within: Sequence[rules.Within]
) -> Iterator[tuple[list[Unit], list[Unit]]]:
    """Yield the units within the modules of each rule, those of an earlier rule left out, and at last all others."""
    left = [list(torch), list(keras)]
    for each in within:
        ours = [unit for unit in left[0] if each.has(unit.module)]
        theirs = [unit for unit in left[1] if each.keras.issuperset(weight.name for weight in unit.weights.values())]
        left = [[unit for unit in left[0] if unit not in ours], [unit for unit in left[1] if unit not in theirs]]
        yield ours, theirs
    yield left[0], left[1]


def _moves(rule: rules.Ruled, torch: Survey, keras: Survey) -> list[Entry]:
    """Return the rule's entry, once for each way to move axes if it gives none. Raises UsageError for other shapes."""
    ours, theirs = ({weight.name: weight for weight in survey.weights} for survey in (torch, keras))
    sides = [ours[name] for name in rule.entry.torch], [theirs[name] for name in rule.entry.keras]
    moves = (_automatic(rule.entry, (torch, keras), sides) if rule.is_open else []) or [rule.entry]
    planned(moves[0], *([weight.shape for weight in weights] for weights in sides))  # raises UsageError
    return moves


def _automatic(entry: Entry, surveys: tuple[Survey, Survey], sides: tuple[list[Weight], list[Weight]]) -> list[Entry]:
    """Return how these weights would map if their modules were counterparts; no entries if shapes forbid it."""
    torch_units, keras_units = (_holders(survey, weights) for survey, weights in zip(surveys, sides, strict=True))
    link = make_link(torch_units, keras_units) if torch_units and keras_units else None
    # The choices hold only what is ambiguous; a bias is not, once its kernel is known, and stands in the entries.
    choices = [*link.choices, link.entries] if link else []
    own = [other for choice in choices for other in choice if (other.torch, other.keras) == (entry.torch, entry.keras)]
    return [replace(other, by="rule") for number, other in enumerate(own) if other not in own[:number]]


def _holders(survey: Survey, weights: list[Weight]) -> list[Unit]:
    """Return the units that hold these weights, in the order of the weights."""
    modules = {weight.module for weight in weights}
    all_units = units(replace(survey, weights=[weight for weight in survey.weights if weight.module in modules]))
    holders = by_key((weight.name, unit) for unit in all_units for weight in unit.weights.values())
    return list(dict.fromkeys(unit for weight in weights for unit in holders.get(weight.name, ())))


def _entries(link: Link, links: Sequence[Link]) -> Iterator[Entry]:
    """Yield the entries of a link, each with how it was found."""
    torch_unit = link.torch[0]
    if any(entry.by == "value" for entry in link.entries):
        by = "value"
    elif names.similarity(torch_unit.label, link.keras[0].label):
        by = "name"
    else:
        alike = [other for other in links if other.torch[0].signature == torch_unit.signature]
        by = "shape" if len(alike) == 1 else "order"
    for entry in link.entries:
        yield replace(entry, by=by)


def _copied(entries: Iterable[Entry]) -> list[Entry]:
    """Return the entries, those of a weight that torch ties and Keras has several times merged into one."""
    by_torch_names: dict[tuple[str, ...], Entry] = {}
    for entry in entries:
        key = tuple(entry.torch)
        earlier = by_torch_names.get(key)
        if earlier is None:
            by_torch_names[key] = entry
        elif len(entry.keras) == 1 and not any((each.slice or each.order or each.each) for each in (entry, earlier)):
            by_torch_names[key] = _copy(earlier, entry)
    return list(by_torch_names.values())


def _with_copies(choices: Choices, entries: list[Entry]) -> Choices:
    """Add to each choice the other copies of the tied weights that it is about."""
    variables = {name for entry in choices[0] for name in entry.keras}
    tied = {name for entry in choices[0] for name in entry.torch}
    rest = [entry for entry in entries if tied.intersection(entry.torch) and not variables.intersection(entry.keras)]
    return [_copied([*rest, *choice]) for choice in choices]


def _copy(first: Entry, further: Entry) -> Entry:
    """Return the entry `first` extended by a further copy of the same torch weight."""
    patterns = first.rearrange.split(";") if first.combine == "copy" else [first.rearrange]
    if first.combine == "copy" and len(patterns) == 1:
        patterns *= len(first.keras)
    patterns = [pattern.strip() for pattern in [*patterns, further.rearrange]]
    rearrange = patterns[0] if len(set(patterns)) == 1 else "; ".join(pattern or IDENTITY for pattern in patterns)
    keras, sizes = [*first.keras, *further.keras], {**first.sizes, **further.sizes}
    return replace(first, keras=keras, rearrange=rearrange, sizes=sizes, combine="copy")


def _mapping(torch: Survey, keras: Survey, entries: list[Entry], skipped: list[list[str]], built: Built) -> Mapping:
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
    left = _with_left((torch, keras), unplaced, entries)
    return replace(
        left,
        changing=changing,
        constants=[*(weight.name for weight in buffers if weight.name not in changing), *left.constants],
        ignored=skipped[0] + skipped[1],
        unlike=statistics.of_all(buffers, [each for each in keras.weights if each.name in left.constants], built),
        assumptions=[
            *(counts(weight.name) for weight in changing_buffers if weight.name not in changing),
            *(keeps(name) for name in left.constants if name in keras.rehearsal.changing),
        ],
    )


def _with_left(surveys: tuple[Survey, Survey], left: Sequence[Sequence[Weight]], entries: list[Entry]) -> Mapping:
    """Return the mapping with the weights that are left on both sides, torch's and Keras's, when `entries` map others.

    Those that need no counterpart are told apart: Keras's own tables and states, unused ones and zeros.
    """
    torch, keras = surveys
    missed = set(map(_size, left[0]))  # a table or a state of Keras's own has the size of none of these
    fixed = [weight.name for weight in left[1] if weight.fixed and _size(weight) not in missed]
    left = [left[0], [weight for weight in left[1] if weight.name not in fixed]]
    unused = {
        survey.side: list(_needless(survey.unused, left[side], surveys[1 - side], left[1 - side]))
        for side, survey in enumerate(surveys)
    }
    still = list(_needless(keras.still, left[1], torch, left[0]))
    needless = {*still, *unused["torch"], *unused["keras"]}
    needing = [[weight for weight in weights if weight.name not in needless] for weights in left]
    missing = [*_unplaced(surveys, needing, entries), *_unplaced(surveys[::-1], needing[::-1], entries)]
    unused = {side: names for side, names in unused.items() if names}
    return Mapping(entries=entries, unplaced=missing, constants=fixed, unused=unused, still=still)


def _needless(
    candidates: Iterable[str], weights: Iterable[Weight], other: Survey, missing: Iterable[Weight]
) -> Iterator[str]:
    """Yield those of the candidates that are weights of no size that the other side uses and misses."""
    names_of_candidates = set(candidates)
    wanted = {_size(weight) for weight in missing if weight.name not in other.unused}
    for weight in weights:
        if weight.name in names_of_candidates and _size(weight) not in wanted:
            yield weight.name


def _unplaced(
    surveys: Sequence[Survey], needing: Sequence[Sequence[Weight]], entries: Sequence[Entry]
) -> Iterator[Unplaced]:
    """Yield the first side's weights, each with candidates: the other side's free weights of the same size."""
    for weight in needing[0]:
        free = sorted(needing[1], key=lambda candidate: -names.similarity(weight.name, candidate.name))
        candidates = [each.name for each in free if _size(each) == _size(weight)][:CANDIDATES]
        yield Unplaced(
            side=surveys[0].side,
            name=weight.name,
            shape=weight.shape,
            candidates=candidates,
            note=_note(weight, surveys, entries, bool(candidates)),
        )


def _note(weight: Weight, surveys: Sequence[Survey], entries: Sequence[Entry], has_candidates: bool) -> str:
    """Return what may explain that a weight has no counterpart: that of its module lacks it."""
    own, other = surveys
    if weight.role == "bias" and one_bias(own, weight.module):
        return ONE_BIAS
    if has_candidates:
        return ""
    of_module = {each.name for each in own.weights if each.module == weight.module}
    ours, theirs = (own.side, other.side)
    found = {name for e in entries if of_module.intersection(getattr(e, ours)) for name in getattr(e, theirs)}
    modules = {each.module for each in other.weights if each.name in found}
    return f"its module's counterpart, {modules.pop()} of {theirs}, has no such weight" if len(modules) == 1 else ""


def _size(weight: Weight) -> int:
    return math.prod(weight.shape)
