"""A mapping of weights for the user to read: a list, rules to paste into the pair's file, what was not found."""

import json
import re
from collections.abc import Iterator
from typing import Any

from parity.pairs.patterns import IDENTITY
from parity.trace.mapping import Entry, Mapping, Unplaced
from parity.trace.survey import Survey

NUMBER = re.compile(r"\d+")
HINT = "say in [[weights]] which belong together, or in [ignore] what the other side does not need"


def table(mapping: Mapping, torch: Survey | None = None, keras: Survey | None = None) -> str:
    """An entry's torch weights with how they move and how it was found, and Keras's below; shapes where known."""
    shapes = {one.name: one.shape for survey in (torch, keras) if survey for one in survey.weights}
    lines = [line for entry in mapping.entries for line in _entry(entry, shapes)]
    lines += [f"{one.side}: {one.name} {list(one.shape)} (not found)" for one in mapping.unplaced]
    lines += [f"{name}{_shape(name, shapes)} (constant: no counterpart needed)" for name in mapping.constants]
    return "\n".join(lines + [f"{name}{_shape(name, shapes)} (ignored)" for name in mapping.ignored])


def complaint(mapping: Mapping) -> str:
    """What was not found, a line for each weight, and what to do: the form of a rule for the first."""
    return "\n".join([*map(_missing, mapping.unplaced), HINT, *_rule(mapping.unplaced)])


def as_toml(mapping: Mapping, torch: Survey | None = None) -> str:
    """Sections that give the same mapping; layers that differ by their number alone are one rule with {i}."""
    plain = {weight.name for weight in torch.weights if len(weight.shape) < 2} if torch else set()
    return "\n".join(_section(entry, plain.issuperset(first.torch)) for entry, first in _compressed(mapping))


def _entry(entry: Entry, shapes: dict[str, tuple[int, ...]]) -> Iterator[str]:
    ours = " + ".join(f"{name}{_shape(name, shapes)}" for name in entry.torch)
    moves = _pattern(entry)
    yield f"{ours}{f': {moves}' if moves else ''} (by {entry.by})"
    for name in entry.keras:
        yield f"    {name}{_shape(name, shapes)}"


def _shape(name: str, shapes: dict[str, tuple[int, ...]]) -> str:
    return f" {list(shapes[name])}" if name in shapes else ""


def _pattern(entry: Entry) -> str:
    parts = [entry.rearrange, f"order {entry.order}" if entry.order else "", entry.each and f"each {entry.each}"]
    if entry.combine != "join":
        parts.append(entry.combine)
    return ", ".join(filter(None, parts))


def _missing(one: Unplaced) -> str:
    could = f"as large: {', '.join(one.candidates)}" if one.candidates else "none of the other side's is as large"
    note = f"; {one.note}" if one.note else ""
    return f"  {one.side}: {one.name} {list(one.shape)}; {could}{note}"


def _rule(unplaced: list[Unplaced]) -> Iterator[str]:
    """[[weights]] for the first weight of torch's that could be one of Keras's."""
    one = next((one for one in unplaced if one.side == "torch" and one.candidates), None)
    if one:
        yield f"such as:\n\n{_section(Entry(torch=[one.name], keras=one.candidates[:1]), plain=True)}"


def _section(entry: Entry, plain: bool) -> str:
    """A rule without `rearrange` leaves it to be found: only of vectors is that sure to be what it was."""
    alone = entry.combine == "join" and not entry.order and not entry.each
    moves = entry.rearrange or ("" if plain or not alone else IDENTITY)
    fields: dict[str, Any] = {"torch": _one(entry.torch), "keras": _one(entry.keras), "rearrange": moves}
    fields |= {"sizes": entry.sizes, "order": entry.order, "each": entry.each}
    fields |= {"combine": entry.combine if entry.combine != "join" else ""}
    lines = [f"{name} = {_value(value)}" for name, value in fields.items() if value]
    return "\n".join(["[[weights]]", *lines, ""])


def _one(names: list[str]) -> str | list[str]:
    return names[0] if len(names) == 1 else names


def _value(value: object) -> str:
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{name} = {size}' for name, size in value.items())} }}"
    return json.dumps(value, ensure_ascii=False)


def _compressed(mapping: Mapping) -> Iterator[tuple[Entry, Entry]]:
    """Entries, those of a run of layers as one with a placeholder where it stands for exactly these; with the first."""
    names = [name for entry in mapping.entries for name in entry.torch]
    names += [*mapping.constants, *mapping.ignored, *(one.name for one in mapping.unplaced)]
    groups: dict[str, list[Entry]] = {}
    for entry in mapping.entries:
        templates = list(_templates(entry))
        groups.setdefault(repr(templates[0]) if templates else repr(entry), []).append(entry)
    for group in groups.values():
        template = next(_templates(group[0]), None)
        if len(group) > 1 and template and _stands_for(template, names) == len(group):
            yield template, group[0]
        else:
            yield from zip(group, group, strict=True)


def _templates(entry: Entry) -> Iterator[Entry]:
    """The entry with {i} for the first number that all of its names have."""
    for found in NUMBER.findall(entry.torch[0]):
        pattern = re.compile(rf"(?<!\d){found}(?!\d)")
        if all(pattern.search(name) for name in [*entry.torch, *entry.keras]):
            sides = [[pattern.sub("{i}", name, count=1) for name in names] for names in (entry.torch, entry.keras)]
            fields = {name: getattr(entry, name) for name in ("rearrange", "sizes", "order", "each", "combine")}
            yield Entry(torch=sides[0], keras=sides[1], **fields)
            return


def _stands_for(template: Entry, names: list[str]) -> int:
    """How many of the weights the first name of a template is."""
    pattern = re.compile(re.escape(template.torch[0]).replace(r"\{i\}", r"[^./]+?"))
    return sum(bool(pattern.fullmatch(name)) for name in names)
