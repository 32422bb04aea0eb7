"""All mutations of a source, and a seeded order in which they are drawn."""

import random
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import NamedTuple

from mutating import arguments, operations
from mutating.code import Code, Site

KINDS = (
    arguments.NUMBER, arguments.SWITCH, arguments.WORD, arguments.DROPPED, arguments.CONSTANT, arguments.AXIS,
    operations.OPERATOR, operations.ORDER, operations.RESIDUAL, operations.MASK, operations.CAST, operations.STOPPED,
    operations.ACTIVATION, operations.REDUCTION,
)  # fmt: skip


class Mutation(NamedTuple):
    """A site in a file of a port; `source`: the file's mutated source."""

    file: str
    site: Site
    source: Callable[[], str]


def mutations(sources: Mapping[str, str], executed: Mapping[str, Collection[int]]) -> Iterator[Mutation]:
    """Yield every mutation of the lines that are executed; both arguments are by file."""
    for file in sorted(sources):
        code, lines = Code(sources[file]), set(executed.get(file, ()))
        for node in code.nodes():
            for change in (*arguments.changes(code, node), *operations.changes(code, node)):
                site = code.site(change)
                if site and lines.intersection(site.lines):
                    yield Mutation(file, site, lambda code=code, change=change: code.mutated(change))  # type: ignore[misc]


def drawn(found: Iterator[Mutation], seed: str) -> Iterator[Mutation]:
    """Yield the mutations in a random order that depends on the seed alone, each kind as often as the others."""
    source = random.Random(seed)
    by_kind: dict[str, list[Mutation]] = {}
    for mutation in found:
        by_kind.setdefault(mutation.site.kind, []).append(mutation)
    for each in by_kind.values():
        source.shuffle(each)
    while by_kind:
        for kind in source.sample(sorted(by_kind), len(by_kind)):
            yield by_kind[kind].pop()
            if not by_kind[kind]:
                del by_kind[kind]
