"""The [[weights]] and [ignore] of a pair's file, against the weights that there are.

A name may hold placeholders: {i} stands for a part of one component of the path, the same on both sides. A Keras
weight is known by its name, by the framework's own, or by the end of either; "..." at a name's start stands for
what the first of its list begins with.
"""

import fnmatch
import itertools
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from msgspec.structs import replace

from parity.config.pair import WeightRule
from parity.core.errors import UsageError, nearest
from parity.pairs.patterns import tidy
from parity.pairs.transfer import check
from parity.pairs.weights.links import link
from parity.pairs.weights.units import Unit, units
from parity.trace.mapping import Entry
from parity.trace.survey import Survey, Weight

PLACEHOLDER = re.compile(r"\{(\w+)\}")
Choices = list[list[Entry]]


class Ruled(NamedTuple):
    """What a rule says of some weights. `choices`: where it leaves open how their axes move."""

    entry: Entry
    module: str
    choices: Choices


class _Weights:
    """A side's weights by all names that they have."""

    def __init__(self, survey: Survey) -> None:
        self.side = survey.side
        self.weights = {weight.name: weight for weight in survey.weights}
        self.names = {name: name for name in self.weights}
        self.names |= {alias: name for alias, name in survey.tied.items() if name in self.weights}
        for weight in survey.weights:
            self.names |= {also: weight.name for also in weight.also if also not in self.names}

    def find(self, name: str) -> str:
        """The weight's own name. Raises UsageError."""
        if name in self.names:
            return self.names[name]
        ends = {own for known, own in self.names.items() if self.side == "keras" and known.endswith(f"/{name}")}
        if len(ends) == 1:
            return ends.pop()
        if ends:
            raise UsageError(f"[[weights]]: {name!r} is the end of {len(ends)} weights: {', '.join(sorted(ends))}")
        raise UsageError(f"[[weights]]: {self.side} has no weight {name!r}{nearest(name, self.names)}")


def ignored(survey: Survey, globs: Iterable[str]) -> list[str]:
    """The weights that the user wants left out. Raises UsageError for a glob that fits none."""
    names = {name: weight.name for weight in survey.weights for name in (weight.name, *weight.also)}
    left_out: set[str] = set()
    for glob in globs:
        fitting = fnmatch.filter(names, glob)
        if not fitting:
            raise UsageError(f"[ignore]: {survey.side} has no weight that fits {glob!r}{nearest(glob, names)}")
        left_out.update(names[name] for name in fitting)
    return [weight.name for weight in survey.weights if weight.name in left_out]


def ruled(torch: Survey, keras: Survey, rules: Iterable[WeightRule]) -> list[Ruled]:
    """What the rules come to. Raises UsageError where a name does not exist or comes twice, or shapes do not fit."""
    surveys, sides = (torch, keras), (_Weights(torch), _Weights(keras))
    found = [
        _complete(_entry(rule, ours, theirs), not rule.rearrange, surveys, sides)
        for rule in rules
        for ours, theirs in _expanded(rule, *sides)
    ]
    for side in ("torch", "keras"):
        names = sorted(name for one in found for name in getattr(one.entry, side))
        twice = next((name for name, after in itertools.pairwise(names) if name == after), None)
        if twice:
            raise UsageError(f"[[weights]]: {side}'s {twice!r} is named twice: expected one rule for each weight")
    return found


def _entry(rule: WeightRule, torch: list[str], keras: list[str]) -> Entry:
    return Entry(
        torch=torch,
        keras=keras,
        rearrange=rule.rearrange if ";" in rule.rearrange else tidy(rule.rearrange),
        sizes=rule.sizes,
        order=rule.order,
        each=rule.each,
        combine=rule.combine,
        by="rule",
    )


def _expanded(rule: WeightRule, torch: _Weights, keras: _Weights) -> Iterator[tuple[list[str], list[str]]]:
    """The names on both sides, for everything that the placeholders can stand for."""
    ours, theirs = _listed(rule.torch, "."), _listed(rule.keras, "/")
    known = set(PLACEHOLDER.findall(ours[0]))
    unknown = sorted({name for text in ours + theirs for name in PLACEHOLDER.findall(text)} - known)
    if unknown:
        raise UsageError(
            f"[[weights]]: {{{unknown[0]}}} is not in {ours[0]!r}: the first of torch's names has them all"
        )
    values = list(_values(ours[0], torch)) if known else [{}]
    if not values:
        raise UsageError(f"[[weights]]: torch has no weight like {ours[0]!r}{nearest(ours[0], torch.names)}")
    for value in values:
        yield [torch.find(_filled(text, value)) for text in ours], [keras.find(_filled(text, value)) for text in theirs]


def _listed(said: str | list[str], separator: str) -> list[str]:
    """Names with their beginnings."""
    texts = [said] if isinstance(said, str) else list(said)
    if not texts:
        raise UsageError("[[weights]]: received an empty list of names, expected at least one")
    first = texts[0].split(separator)
    for number, text in enumerate(texts):
        if text.startswith("...") and number:
            end = text[3:].lstrip(separator).split(separator)
            texts[number] = separator.join(first[: max(len(first) - len(end), 0)] + end)
    return texts


def _values(text: str, weights: _Weights) -> Iterator[dict[str, str]]:
    """What the placeholders of a name can stand for."""
    seen: set[str] = set()

    def group(found: re.Match[str]) -> str:
        name = found[0][2:-2]
        again = name in seen
        seen.add(name)
        return f"(?P={name})" if again else f"(?P<{name}>[^./]+?)"

    pattern = re.compile(re.sub(r"\\\{\w+\\\}", group, re.escape(text)))
    for name in weights.names:
        match = pattern.fullmatch(name)
        if match:
            yield match.groupdict()


def _filled(text: str, values: dict[str, str]) -> str:
    return PLACEHOLDER.sub(lambda found: values[found[1]], text)


def _complete(entry: Entry, free: bool, surveys: tuple[Survey, Survey], sides: tuple[_Weights, _Weights]) -> Ruled:
    """With the way for axes to move, if the rule says none. Raises UsageError where shapes do not fit."""
    ours = [sides[0].weights[name] for name in entry.torch]
    theirs = [sides[1].weights[name] for name in entry.keras]
    free = free and not entry.order and not entry.each and entry.combine == "join"
    choices = _automatic(entry, surveys, (ours, theirs)) if free else []
    chosen = choices[0] if choices else entry
    check(chosen, [weight.shape for weight in ours], [weight.shape for weight in theirs])
    return Ruled(chosen, ours[0].module, [[choice] for choice in choices] if len(choices) > 1 else [])


def _automatic(entry: Entry, surveys: tuple[Survey, Survey], sides: tuple[list[Weight], list[Weight]]) -> list[Entry]:
    """How these weights would be mapped if their modules were known to be each other's; none if shapes forbid it."""
    here, there = (_holders(survey, weights) for survey, weights in zip(surveys, sides, strict=True))
    made = link(here, there) if here and there else None
    choices = made.ambiguities[0] if made and made.ambiguities else [made.entries] if made else []
    # A bias is unambiguous given its kernel.
    choices = [*choices, made.entries] if made else choices
    found = [one for choice in choices for one in choice if (one.torch, one.keras) == (entry.torch, entry.keras)]
    return [replace(one, by="rule") for number, one in enumerate(found) if one not in found[:number]]


def _holders(survey: Survey, weights: list[Weight]) -> list[Unit]:
    """The units that hold these weights, in their order."""
    modules = {weight.module for weight in weights}
    every = units(replace(survey, weights=[weight for weight in survey.weights if weight.module in modules]))
    names = [weight.name for weight in weights]
    holding = ((names.index(name), unit) for unit in every for name in _names(unit) if name in names)
    return list(dict.fromkeys(unit for _, unit in sorted(holding, key=lambda pair: pair[0])))


def _names(unit: Unit) -> list[str]:
    return [weight.name for weight in unit.weights.values()]
