"""Format a weight mapping for the user: as a list, as rules for the pair's file, and as a list of what is missing."""

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
    """List each entry: torch's weights, how their axes move and how the entry was found, and Keras's weights below.

    Shapes are added where a survey is given.
    """
    shapes = {weight.name: weight.shape for survey in (torch, keras) if survey for weight in survey.weights}
    lines = [line for entry in mapping.entries for line in _entry(entry, shapes)]
    lines += [f"{weight.side}: {weight.name} {list(weight.shape)} (not found)" for weight in mapping.unplaced]
    lines += [f"{name}{_shape(name, shapes)} (constant: no counterpart needed)" for name in mapping.constants]
    return "\n".join(lines + [f"{name}{_shape(name, shapes)} (ignored)" for name in mapping.ignored])


def complaint(mapping: Mapping) -> str:
    """List the weights without a counterpart and what to do about it, with a rule for the first one as an example."""
    return "\n".join([*map(_missing, mapping.unplaced), HINT, *_rule(mapping.unplaced)])


def as_toml(mapping: Mapping, torch: Survey | None = None) -> str:
    """Return [[weights]] sections that give the same mapping.

    Layers that differ only in a number share one rule with {i}. Without torch's survey no weight is known to be a
    vector.
    """
    vectors = {weight.name for weight in torch.weights if len(weight.shape) < 2} if torch else set()
    return "\n".join(_section(entry, vectors.issuperset(first.torch)) for entry, first in _compressed(mapping))


def _entry(entry: Entry, shapes: dict[str, tuple[int, ...]]) -> Iterator[str]:
    torch_names = " + ".join(f"{name}{_shape(name, shapes)}" for name in entry.torch)
    moves = _pattern(entry)
    yield f"{torch_names}{f': {moves}' if moves else ''} (by {entry.by})"
    for name in entry.keras:
        yield f"    {name}{_shape(name, shapes)}"


def _shape(name: str, shapes: dict[str, tuple[int, ...]]) -> str:
    return f" {list(shapes[name])}" if name in shapes else ""


def _pattern(entry: Entry) -> str:
    parts = [entry.rearrange, f"order {entry.order}" if entry.order else "", entry.each and f"each {entry.each}"]
    if entry.combine != "join":
        parts.append(entry.combine)
    return ", ".join(filter(None, parts))


def _missing(weight: Unplaced) -> str:
    of_this_size = f"of this size on the other side: {', '.join(weight.candidates)}"
    candidates = of_this_size if weight.candidates else "no weight of the other side has this size"
    note = f"; {weight.note}" if weight.note else ""
    return f"  {weight.side}: {weight.name} {list(weight.shape)}; {candidates}{note}"


def _rule(unplaced: list[Unplaced]) -> Iterator[str]:
    """Yield a [[weights]] section for the first of torch's weights that could be one of Keras's."""
    weight = next((weight for weight in unplaced if weight.side == "torch" and weight.candidates), None)
    if weight:
        yield f"for example:\n\n{_section(Entry(torch=[weight.name], keras=weight.candidates[:1]), is_vector=True)}"


def _section(entry: Entry, is_vector: bool) -> str:
    """Return one [[weights]] section.

    A rule without `rearrange` lets the program find how axes move. Only for vectors is that certain to give the same
    entry again, so that other entries state that nothing moves.
    """
    is_simple = entry.combine == "join" and not entry.order and not entry.each
    moves = entry.rearrange or ("" if is_vector or not is_simple else IDENTITY)
    fields: dict[str, Any] = {
        "torch": _single_or_list(entry.torch),
        "keras": _single_or_list(entry.keras),
        "rearrange": moves,
    }
    fields |= {"sizes": entry.sizes, "order": entry.order, "each": entry.each}
    fields |= {"combine": entry.combine if entry.combine != "join" else ""}
    lines = [f"{name} = {_value(value)}" for name, value in fields.items() if value]
    return "\n".join(["[[weights]]", *lines, ""])


def _single_or_list(names: list[str]) -> str | list[str]:
    return names[0] if len(names) == 1 else names


def _value(value: object) -> str:
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{name} = {size}' for name, size in value.items())} }}"
    return json.dumps(value, ensure_ascii=False)


def _compressed(mapping: Mapping) -> Iterator[tuple[Entry, Entry]]:
    """Yield rules, and with each the first entry that it stands for.

    Equal entries of numbered layers become one rule with a placeholder, provided that it matches exactly these
    weights.
    """
    names = [name for entry in mapping.entries for name in entry.torch]
    names += [*mapping.constants, *mapping.ignored, *(weight.name for weight in mapping.unplaced)]
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
    """Yield the entry with {i} in place of the first number that all of its names share, if there is one."""
    for number in NUMBER.findall(entry.torch[0]):
        pattern = re.compile(rf"(?<!\d){number}(?!\d)")
        if all(pattern.search(name) for name in [*entry.torch, *entry.keras]):
            sides = [[pattern.sub("{i}", name, count=1) for name in names] for names in (entry.torch, entry.keras)]
            fields = {name: getattr(entry, name) for name in ("rearrange", "sizes", "order", "each", "combine")}
            yield Entry(torch=sides[0], keras=sides[1], **fields)
            return


def _stands_for(template: Entry, names: list[str]) -> int:
    """Return how many weight names the first name of a template matches."""
    pattern = re.compile(re.escape(template.torch[0]).replace(r"\{i\}", r"[^./]+?"))
    return sum(bool(pattern.fullmatch(name)) for name in names)
