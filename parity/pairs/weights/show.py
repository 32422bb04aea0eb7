"""Format a weight mapping for the user: as a list, as rules for the pair's file, and as a list of what is missing."""

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from msgspec.structs import replace

from parity.core.groups import grouped
from parity.core.wording import row
from parity.pairs.weights.patterns import IDENTITY
from parity.trace.mapping import Entry, Mapping

FIELDS = ("slice", "rearrange", "sizes", "order", "each", "combine")  # what a rule says beside the names
LISTED = ("", "torch", "keras", "torch: ", "keras: ")  # in the place of Keras's name where a weight has no counterpart
NUMBER = re.compile(r"\d+")
HINT = "say in [[weights]] which belong together, or in [ignore] what the other side does not need"


def table(mapping: Mapping) -> str:
    """List each entry with its moves, and Keras's weights below, then weights without counterpart; {i} for numbers."""
    shapes = {weight.name: weight.shape for weight in mapping.unplaced}
    lines = [line for group in _alike(mapping.entries, shapes) for line in _entry(group)]
    sides = {weight.name: f"{weight.side}: " for weight in mapping.unplaced}
    for names, what in (
        (sides, "not found"),
        (mapping.constants, "constant: no counterpart needed"),
        (mapping.ignored, "ignored"),
        ([name for side in mapping.unused.values() for name in side], "takes part in nothing that is compared"),
        (mapping.still, "zeros that training cannot move"),
    ):
        for group in _alike([Entry(torch=[name], keras=[sides.get(name, "")]) for name in names], shapes):
            name, first = group.shown.torch[0], group.entries[0].torch[0]
            shape = f" {list(shapes[first])}" if first in shapes else ""
            lines.append(f"{sides.get(first, '')}{name}{shape} ({what}){group.numbers}")
    return "\n".join(lines)


def complaint(mapping: Mapping) -> str:
    """List the weights without a counterpart and what to do about it, with a rule for the first one as an example."""
    unplaced = {weight.name: weight for weight in mapping.unplaced}
    shapes = {weight.name: weight.shape for weight in mapping.unplaced}
    groups = _alike([Entry(torch=[weight.name], keras=[weight.side]) for weight in mapping.unplaced], shapes)
    lines = []
    for group in groups:
        weight = unplaced[group.entries[0].torch[0]]
        of_this_size = f"free and of this size on the other side: {', '.join(weight.candidates)}"
        candidates = of_this_size if weight.candidates else "no free weight of the other side has this size"
        note = f"; {weight.note}" if weight.note else ""
        name = f"{weight.side}: {group.shown.torch[0]} {list(weight.shape)}{group.numbers}"
        lines.append(f"  {name}; {candidates}{note}")
    lines.append(HINT)
    likely = (weight for weight in mapping.unplaced if weight.side == "torch" and weight.candidates)
    if first := next(likely, None):
        example = Entry(torch=[first.name], keras=first.candidates[:1])
        lines.append(f"for example:\n\n{_section(example, is_open=True)}")
    return "\n".join(lines)


def as_toml(mapping: Mapping) -> str:
    """Return [[weights]] sections of the mapping, with {i} for numbers."""
    return "\n".join(map(_section, _compressed(mapping)))


class _Group(NamedTuple):
    """Entries that differ only in a number, shown as one with {i} for `values`; a single one as it is, without any."""

    shown: Entry
    entries: list[Entry]
    values: list[str]

    @property
    def numbers(self) -> str:
        """Return what {i} stands for, to be appended to a line."""
        if not self.values:
            return ""
        numbers = sorted(map(int, self.values))
        if numbers == list(range(numbers[0], numbers[-1] + 1)):
            return f", i = {numbers[0]} to {numbers[-1]}"
        return f", i = {', '.join(map(str, numbers))}"


def _alike(entries: Iterable[Entry], shapes: dict[str, tuple[int, ...]]) -> list[_Group]:
    """Group the entries that differ only in a number: moved alike, found alike, and of one shape."""

    def traits(entry: Entry) -> str:
        return repr((_template(entry)[1], entry.by, [shapes.get(name) for name in (*entry.torch, *entry.keras)]))

    return [
        _Group(_template(alike[0])[1], alike, [_template(entry)[0] for entry in alike])
        if len(alike) > 1
        else _Group(alike[0], alike, [])
        for alike in grouped(entries, traits).values()
    ]


def _entry(group: _Group) -> Iterator[str]:
    first = group.entries[0]
    moves = [
        first.slice and f"slice {first.slice}",
        first.rearrange,
        f"order {row(first.order)}" if first.order else "",
    ]
    moves += [first.each and f"each {first.each}", first.combine if first.combine != "join" else ""]
    told = ", ".join(filter(None, moves))
    yield f"{' + '.join(group.shown.torch)}{f': {told}' if told else ''} (by {first.by}){group.numbers}"
    yield from (f"    {name}" for name in group.shown.keras)


def _section(entry: Entry, is_open: bool = False) -> str:
    """Return one [[weights]] section; without `is_open` one that states it where nothing moves.

    A rule without `rearrange` lets the program find how axes move, which may not give the same entry again.
    """
    is_simple = entry.combine == "join" and not entry.order and not entry.each and not entry.slice
    moves = entry.rearrange or ("" if is_open or not is_simple else IDENTITY)
    names = {"torch": entry.torch, "keras": entry.keras}
    fields: dict[str, Any] = {side: given[0] if len(given) == 1 else given for side, given in names.items()}
    fields |= {name: getattr(entry, name) for name in FIELDS}
    fields |= {"rearrange": moves, "combine": entry.combine if entry.combine != "join" else ""}
    lines = [f"{name} = {toml_value(value)}" for name, value in fields.items() if value]
    return "\n".join(["[[weights]]", *lines, ""])


def toml_value(value: object) -> str:
    """Return a value as it is written in a TOML file."""
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{name} = {toml_value(inner)}' for name, inner in value.items())} }}"
    return json.dumps(value, ensure_ascii=False)


def _compressed(mapping: Mapping) -> Iterator[Entry]:
    """Yield rules.

    Equal entries of numbered layers become one rule with a placeholder, provided that it matches exactly these
    weights.
    """
    names = [name for entry in mapping.entries for name in entry.torch]
    names += [*mapping.constants, *mapping.left_out, *(weight.name for weight in mapping.unplaced)]
    for group in grouped(mapping.entries, lambda entry: repr(_template(entry)[1])).values():
        number, template = _template(group[0])
        pattern = re.compile(re.escape(template.torch[0]).replace(r"\{i\}", r"[^./]+?"))
        if len(group) > 1 and number and sum(bool(pattern.fullmatch(name)) for name in names) == len(group):
            yield template
        else:
            yield from group


def _template(entry: Entry) -> tuple[str, Entry]:
    """Return the first number that all names of the entry share, and the entry with {i} in its place.

    Without such a number, return "" and the entry. Keras's name may be the name of a side, or missing, in an entry that
    only lists a weight.
    """
    for number in NUMBER.findall(entry.torch[0]):
        pattern = re.compile(rf"(?<!\d){number}(?!\d)")
        if all(pattern.search(name) for name in [*entry.torch, *entry.keras] if name not in LISTED):
            sides = [[pattern.sub("{i}", name, count=1) for name in names] for names in (entry.torch, entry.keras)]
            return number, replace(entry, torch=sides[0], keras=sides[1], by="order")
    return "", entry
