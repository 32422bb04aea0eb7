"""What the alignment of whole modules leaves: single weights, torch's buffers, weights that torch ties."""

from collections.abc import Iterable, Iterator, Sequence

from parity.pairs.patterns import IDENTITY
from parity.pairs.weights import names
from parity.pairs.weights.align import Placed, align
from parity.pairs.weights.built import Built
from parity.pairs.weights.links import Link, link
from parity.pairs.weights.units import Unit, bare
from parity.trace.mapping import Entry
from parity.trace.survey import Survey, Weight

SIDES = ("torch", "keras")


def single(torch: Sequence[Unit], keras: Sequence[Unit], placed: Iterable[Placed]) -> list[Placed]:
    """Weight by weight; what is missing in both of two units that have their places belongs to neither of them."""
    links = [one.link for one in placed]
    whole = {id(unit) for made in links for unit in (*made.torch, *made.keras)}
    here = _left(torch, {name for made in links for entry in made.entries for name in entry.torch})
    there = _left(keras, {name for made in links for entry in made.entries for name in entry.keras})
    owners = {id(one): id(unit) in whole for one, unit in (*here, *there)}
    found = align([one for one, _ in here], [one for one, _ in there], lambda unit: ())
    return [one for one in found if not (owners[id(one.link.torch[0])] and owners[id(one.link.keras[0])])]


def buffers(
    torch: Survey, keras: Sequence[Unit], placed: Iterable[Placed], skipped: Iterable[str], built: Built
) -> list[Placed]:
    """torch's buffers that are no statistics, as far as Keras has untrained weights for them: by values, then names."""
    used = {name for one in placed for entry in one.link.entries for name in entry.keras}
    wanted = [one for one, _ in _left(keras, used) if not one.weights["weight"].trainable]
    given = [_bare(weight) for weight in torch.weights if weight.constant and weight.name not in set(skipped)]
    found = list(_of_the_same_values(given, wanted, built))
    placed_here, placed_there = ({id(unit) for one in found for unit in getattr(one.link, side)} for side in SIDES)
    for real in (True, False):
        here = [unit for unit in given if _real(unit) == real and id(unit) not in placed_here]
        there = [unit for unit in wanted if _real(unit) == real and id(unit) not in placed_there]
        found += align(here, there, lambda unit: ())
    return found


def _of_the_same_values(torch: Sequence[Unit], keras: Sequence[Unit], built: Built) -> Iterator[Placed]:
    """Pairs to which both builders gave the same values; of several equal ones that with the most alike name."""
    left = dict(enumerate(keras))
    for number, here in enumerate(torch):
        for place in sorted(left, key=lambda place: -names.alike(here.label, left[place].label)):
            made = link([here], [left[place]])
            same = [entry for choice in _choices(made) for entry in choice if built.same(entry)]
            if same:
                yield Placed(Link(torch=(here,), keras=(left.pop(place),), entries=same[:1]), number, place, 0)
                break


def _choices(made: Link | None) -> list[list[Entry]]:
    if made is None:
        return []
    return made.ambiguities[0] if made.ambiguities else [made.entries]


def copied(entries: Iterable[Entry]) -> list[Entry]:
    """With one entry for a weight that torch ties and Keras has several times."""
    found: dict[tuple[str, ...], Entry] = {}
    for entry in entries:
        key = tuple(entry.torch)
        first = found.get(key)
        if first is None:
            found[key] = entry
        elif len(entry.keras) == 1 and not (entry.order or entry.each or first.order or first.each):
            found[key] = _copy(first, entry)
    return list(found.values())


def free(choices: list[list[Entry]], entries: list[Entry]) -> list[list[Entry]]:
    """Choices that also hold the other copies of the tied weights that they are about."""
    variables = {name for entry in choices[0] for name in entry.keras}
    tied = {name for entry in choices[0] for name in entry.torch}
    rest = [one for one in entries if tied.intersection(one.torch) and not variables.intersection(one.keras)]
    return [copied([*rest, *choice]) for choice in choices]


def _copy(first: Entry, further: Entry) -> Entry:
    texts = first.rearrange.split(";") if first.combine == "copy" else [first.rearrange]
    if first.combine == "copy" and len(texts) == 1:
        texts *= len(first.keras)
    texts = [text.strip() for text in [*texts, further.rearrange]]
    rearrange = texts[0] if len(set(texts)) == 1 else "; ".join(text or IDENTITY for text in texts)
    return Entry(
        torch=first.torch,
        keras=[*first.keras, *further.keras],
        rearrange=rearrange,
        sizes={**first.sizes, **further.sizes},
        combine="copy",
        by=first.by,
    )


def _left(units: Iterable[Unit], used: set[str]) -> list[tuple[Unit, Unit]]:
    """Each weight that is not used, as a unit, with the unit that it is of."""
    return [(one, unit) for unit in units for one in bare(unit) if one.weights["weight"].name not in used]


def _real(unit: Unit) -> bool:
    return "float" in unit.weights["weight"].dtype


def _bare(weight: Weight) -> Unit:
    return Unit(
        label=weight.name, module=weight.module, chosen=weight.name, family="", certain=False, facts={},
        weights={"weight": weight},
    )  # fmt: skip
