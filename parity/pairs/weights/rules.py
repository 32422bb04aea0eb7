"""Find the weights of both models that the [[weights]] and [ignore] sections of a pair's file name.

A name may hold placeholders: {i} stands for a part of one component of the path, the same on both sides. A Keras
weight may be given by its name, by the framework's own name, or by the end of either. "..." at the start of a name
stands for the beginning of the first name in the same list. Two names that end in ** say that the weights within the
one module are those within the other, and leave it to the program which is which.
"""

import fnmatch
import itertools
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from msgspec.structs import asdict

from parity.config.pair import PREFIX, WeightRule
from parity.core.errors import UsageError, nearest
from parity.pairs.weights.patterns import tidy
from parity.runtime.survey import Survey
from parity.trace.mapping import Entry

PLACEHOLDER = re.compile(r"\{(\w+)\}")


class Ruled(NamedTuple):
    """A rule with exact names; `is_open` says that it leaves open how the weights' axes move."""

    entry: Entry
    is_open: bool


class Within(NamedTuple):
    """Two modules whose weights belong together: torch's by its path, Keras's by the names of its weights."""

    torch: str
    keras: frozenset[str]

    def has(self, module: str) -> bool:
        """Return whether a module of torch's is within torch's."""
        return not self.torch or module == self.torch or module.startswith(f"{self.torch}.")


class _Weights:
    """A side's weights by all names that they have."""

    def __init__(self, survey: Survey) -> None:
        self.side = survey.side
        self.names = {weight.name: weight.name for weight in survey.weights}
        self.names |= {alias: name for alias, name in survey.tied.items() if name in self.names}
        for weight in survey.weights:
            self.names |= {also: weight.name for also in weight.also if also not in self.names}

    def find(self, name: str) -> str:
        """Return the weight's own name. Raises UsageError if no weight, or more than one, fits."""
        if name in self.names:
            return self.names[name]
        aliases = self.names.items() if self.side == "keras" else ()
        matches = {weight for alias, weight in aliases if alias.endswith(f"/{name}")}
        if len(matches) == 1:
            return matches.pop()
        if matches:
            listed = ", ".join(sorted(matches))
            raise UsageError(f"[[weights]]: {name!r} is the end of {len(matches)} weights: {listed}")
        raise UsageError(f"[[weights]]: {self.side} has no weight {name!r}{nearest(name, self.names)}")


def ignored(survey: Survey, globs: Iterable[str]) -> list[str]:
    """Return the weights that the user wants left out. Raises UsageError for a glob that fits none."""
    names = {name: weight.name for weight in survey.weights for name in (weight.name, *weight.also)}
    left_out: set[str] = set()
    for glob in globs:
        fitting = fnmatch.filter(names, glob)
        if not fitting:
            raise UsageError(f"[ignore]: {survey.side} has no weight that fits {glob!r}{nearest(glob, names)}")
        left_out.update(names[name] for name in fitting)
    return [weight.name for weight in survey.weights if weight.name in left_out]


def ruled(torch: Survey, keras: Survey, rules: Iterable[WeightRule]) -> list[Ruled]:
    """Return the rules with exact names for all placeholders. Raises UsageError for unknown or double ones."""
    sides = _Weights(torch), _Weights(keras)
    entries = []
    for rule in (rule for rule in rules if not rule.is_prefix):
        is_open = not (rule.slice or rule.rearrange or rule.order or rule.each) and rule.combine == "join"
        rearrange = rule.rearrange if ";" in rule.rearrange else tidy(rule.rearrange)
        for names in _expanded(rule, *sides):
            moves = asdict(rule) | {"torch": names[0], "keras": names[1], "rearrange": rearrange, "by": "rule"}
            entries.append(Ruled(Entry(**moves), is_open))
    for side in ("torch", "keras"):
        named = sorted(name for ruled in entries for name in getattr(ruled.entry, side))
        if duplicate := next((name for name, after in itertools.pairwise(named) if name == after), None):
            raise UsageError(f"[[weights]]: {side}'s {duplicate!r} is named twice: expected one rule for each weight")
    return entries


def prefixed(torch: Survey, keras: Survey, rules: Iterable[WeightRule]) -> list[Within]:
    """Return the modules of rules that end in **, for all that placeholders mean. Raises UsageError for empty ones."""
    holders = list(dict.fromkeys(path for weight in torch.weights for path in ("", *around(weight.module))))
    found = []
    for rule in rules:
        if not rule.is_prefix:
            continue
        texts = [str(name).removesuffix(PREFIX).rstrip("./") for name in (rule.torch, rule.keras)]
        paths = [match for path in holders if (match := _pattern(texts[0]).fullmatch(path))]
        if not paths:
            raise UsageError(f"[[weights]]: torch has no weight within {rule.torch!r}{nearest(texts[0], holders)}")
        found += [Within(path[0], _within(keras, _filled(texts[1], path.groupdict()))) for path in paths]
    return found


def _within(keras: Survey, path: str) -> frozenset[str]:
    """Return Keras's weights within a layer, given by its path or the end of it. Raises UsageError if there is none."""
    by_name = {name: weight.name for weight in keras.weights for name in (weight.name, *weight.also)}
    names = [name for name in by_name if not path or name.startswith(f"{path}/")]
    names = names or [name for name in by_name if f"/{path}/" in name]
    if not names:
        layers = {path for name in by_name for path in around(name.rpartition("/")[0], "/")}
        raise UsageError(f"[[weights]]: keras has no weight within {path!r}{nearest(path, layers)}")
    return frozenset(by_name[name] for name in names)


def around(path: str, separator: str = ".") -> list[str]:
    """Return a path and those of all that is around it."""
    parts = path.split(separator)
    return [separator.join(parts[:end]) for end in range(1, len(parts) + 1)]


def _expanded(rule: WeightRule, torch: _Weights, keras: _Weights) -> Iterator[tuple[list[str], list[str]]]:
    """Yield the names on both sides, once for everything that the placeholders can stand for."""
    torch_texts, keras_texts = _listed(rule.torch, "."), _listed(rule.keras, "/")
    placeholders = set(PLACEHOLDER.findall(torch_texts[0]))
    unknown = sorted({name for text in torch_texts + keras_texts for name in PLACEHOLDER.findall(text)} - placeholders)
    if unknown:
        raise UsageError(
            f"[[weights]]: {{{unknown[0]}}} is not in {torch_texts[0]!r}: the first of torch's names must hold every "
            "placeholder of the rule"
        )
    matches = [match.groupdict() for match in map(_pattern(torch_texts[0]).fullmatch, torch.names) if match]
    if placeholders and not matches:
        raise UsageError(
            f"[[weights]]: torch has no weight like {torch_texts[0]!r}{nearest(torch_texts[0], torch.names)}"
        )
    for value in matches if placeholders else [{}]:
        yield (
            [torch.find(_filled(text, value)) for text in torch_texts],
            [keras.find(_filled(text, value)) for text in keras_texts],
        )


def _listed(given: str | list[str], separator: str) -> list[str]:
    """Return the names of a rule, with "..." replaced by the beginning of the first name."""
    texts = [given] if isinstance(given, str) else list(given)
    if not texts:
        raise UsageError("[[weights]]: received an empty list of names, expected at least one")
    first = texts[0].split(separator)
    for number, text in enumerate(texts):
        if text.startswith("...") and number:
            ending = text[3:].lstrip(separator).split(separator)
            texts[number] = separator.join(first[: max(len(first) - len(ending), 0)] + ending)
    return texts


def _pattern(text: str) -> re.Pattern[str]:
    """Return the pattern of a name with placeholders; one that comes twice stands for the same both times."""
    seen: set[str] = set()

    def group(placeholder: re.Match[str]) -> str:
        name = placeholder[0][2:-2]
        is_repeated = name in seen
        seen.add(name)
        return f"(?P={name})" if is_repeated else f"(?P<{name}>[^./]+?)"

    return re.compile(re.sub(r"\\\{\w+\\\}", group, re.escape(text)))


def _filled(text: str, values: dict[str, str]) -> str:
    return PLACEHOLDER.sub(lambda placeholder: values[placeholder[1]], text)
