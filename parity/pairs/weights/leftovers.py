"""Place what the alignment of whole modules leaves: single weights, torch's buffers, weights that torch ties."""

from collections.abc import Iterable, Iterator, Sequence

from parity.pairs.patterns import IDENTITY
from parity.pairs.weights import names
from parity.pairs.weights.align import PlacedLink, align
from parity.pairs.weights.built import Built
from parity.pairs.weights.links import Link, link
from parity.pairs.weights.units import Unit, single_weight_units
from parity.trace.mapping import Entry
from parity.trace.survey import Survey, Weight

SIDES = ("torch", "keras")


def align_single_weights(
    torch: Sequence[Unit], keras: Sequence[Unit], placed: Iterable[PlacedLink]
) -> list[PlacedLink]:
    """Align the weights that are left one by one.

    Weights left over in two units that both have counterparts are not linked to each other: they belong to neither.
    """
    links = [placed_link.link for placed_link in placed]
    whole = {id(unit) for link in links for unit in (*link.torch, *link.keras)}
    torch_left = _unused(torch, {name for link in links for entry in link.entries for name in entry.torch})
    keras_left = _unused(keras, {name for link in links for entry in link.entries for name in entry.keras})
    has_placed_owner = {id(weight): id(owner) in whole for weight, owner in (*torch_left, *keras_left)}
    aligned = align([weight for weight, _ in torch_left], [weight for weight, _ in keras_left], lambda unit: ())
    return [
        placed_link
        for placed_link in aligned
        if not (has_placed_owner[id(placed_link.link.torch[0])] and has_placed_owner[id(placed_link.link.keras[0])])
    ]


def buffers(
    torch: Survey, keras: Sequence[Unit], placed: Iterable[PlacedLink], skipped: Iterable[str], built: Built
) -> list[PlacedLink]:
    """Align torch's buffers that are no statistics with the untrained weights that Keras has left.

    Equal values decide first, then names. Floating-point buffers are aligned with each other, and whole numbers with
    each other.
    """
    used = {name for placed_link in placed for entry in placed_link.link.entries for name in entry.keras}
    wanted = [unit for unit, _ in _unused(keras, used) if not unit.weights["weight"].trainable]
    given = [_buffer_unit(weight) for weight in torch.weights if weight.constant and weight.name not in set(skipped)]
    aligned = list(_of_equal_values(given, wanted, built))
    torch_placed, keras_placed = ({id(unit) for one in aligned for unit in getattr(one.link, side)} for side in SIDES)
    for floating in (True, False):
        torch_left = [unit for unit in given if _is_float(unit) == floating and id(unit) not in torch_placed]
        keras_left = [unit for unit in wanted if _is_float(unit) == floating and id(unit) not in keras_placed]
        aligned += align(torch_left, keras_left, lambda unit: ())
    return aligned


def _of_equal_values(torch: Sequence[Unit], keras: Sequence[Unit], built: Built) -> Iterator[PlacedLink]:
    """Yield links of units to which both builders gave equal values; of several, that with the most similar name."""
    left = dict(enumerate(keras))
    for number, unit in enumerate(torch):
        for place in sorted(left, key=lambda place: -names.similarity(unit.label, left[place].label)):
            equal = [entry for choice in _choices(link([unit], [left[place]])) for entry in choice if built.same(entry)]
            if equal:
                yield PlacedLink(Link(torch=(unit,), keras=(left.pop(place),), entries=equal[:1]), number, place, 0)
                break


def _choices(made: Link | None) -> list[list[Entry]]:
    if made is None:
        return []
    return made.ambiguities[0] if made.ambiguities else [made.entries]


def copied(entries: Iterable[Entry]) -> list[Entry]:
    """Return the entries, those of a weight that torch ties and Keras has several times merged into one."""
    by_torch_names: dict[tuple[str, ...], Entry] = {}
    for entry in entries:
        key = tuple(entry.torch)
        earlier = by_torch_names.get(key)
        if earlier is None:
            by_torch_names[key] = entry
        elif len(entry.keras) == 1 and not (entry.order or entry.each or earlier.order or earlier.each):
            by_torch_names[key] = _copy(earlier, entry)
    return list(by_torch_names.values())


def with_copies(choices: list[list[Entry]], entries: list[Entry]) -> list[list[Entry]]:
    """Add to each choice the other copies of the tied weights that it is about."""
    variables = {name for entry in choices[0] for name in entry.keras}
    tied = {name for entry in choices[0] for name in entry.torch}
    rest = [entry for entry in entries if tied.intersection(entry.torch) and not variables.intersection(entry.keras)]
    return [copied([*rest, *choice]) for choice in choices]


def _copy(first: Entry, further: Entry) -> Entry:
    """Return the entry `first` extended by a further copy of the same torch weight."""
    patterns = first.rearrange.split(";") if first.combine == "copy" else [first.rearrange]
    if first.combine == "copy" and len(patterns) == 1:
        patterns *= len(first.keras)
    patterns = [pattern.strip() for pattern in [*patterns, further.rearrange]]
    rearrange = patterns[0] if len(set(patterns)) == 1 else "; ".join(pattern or IDENTITY for pattern in patterns)
    return Entry(
        torch=first.torch,
        keras=[*first.keras, *further.keras],
        rearrange=rearrange,
        sizes={**first.sizes, **further.sizes},
        combine="copy",
        by=first.by,
    )


def _unused(units: Iterable[Unit], used: set[str]) -> list[tuple[Unit, Unit]]:
    """Return each unused weight as a unit of its own, with the unit that it belongs to."""
    return [
        (single, unit)
        for unit in units
        for single in single_weight_units(unit)
        if single.weights["weight"].name not in used
    ]


def _is_float(unit: Unit) -> bool:
    return "float" in unit.weights["weight"].dtype


def _buffer_unit(weight: Weight) -> Unit:
    return Unit(
        label=weight.name, module=weight.module, chosen=weight.name, family="", certain=False, facts={},
        weights={"weight": weight},
    )  # fmt: skip
