"""The part of the report that only pairs have: what was matched, promoted, assumed, accepted and suggested."""

from collections.abc import Iterator

from parity.core.wording import count
from parity.pairs.weights import show as weights
from parity.report import coverage
from parity.report.console import Console
from parity.results import CaseResult, Cause, Matched

MOST_NAMES = 6  # names that a list prints at most


def show(case: CaseResult, console: Console) -> None:
    """Print this part of the report; for a built-in case print nothing."""
    remarks = list(lines(case))
    if remarks:
        console.print(f"\n{case.case}:")
    for line in (f"  {remark}" for remark in remarks):
        console.fold(line)
    suggest(case, console)
    if case.mapping:
        console.print(f"\nweights of {case.case}:\n{weights.table(case.mapping)}")
    if case.mapping and case.mapping.entries:
        console.print(
            f"\nthe same as [[weights]] rules, to copy into the pair file and edit:\n\n{weights.as_toml(case.mapping)}"
        )


def suggest(case: CaseResult, console: Console) -> None:
    """Print the sections that accept the differences with a known cause, to be added to the pair file."""
    for suggestion in case.suggestions:
        console.print()
        console.fold(f"  {suggestion.why}; add to the pair file (or let --accept add it):")
        console.print(f"\n{suggestion.toml}", soft_wrap=True, end="")


def lines(case: CaseResult) -> Iterator[str]:
    """Yield the remarks on a case, a line each, without what its reason says."""
    if case.matched:
        yield from _matched(case.matched)
    for what, names in (
        ("the model computes these in float32; promoted to float64 in the high run", case.lifted),
        ("modules whose weights could not be told apart; matched in the order of execution", case.undecided),
    ):
        if names:
            yield f"{what}: {_few(names)}"
    yield from (f"assumed: {sentence}" for sentence in case.assumptions if sentence not in case.reason)
    yield from (sentence for sentence in case.not_compared if sentence not in case.reason)
    yield from _accepted(case.expected)
    yield from coverage.lines(case)


def _matched(matched: Matched) -> Iterator[str]:
    ways = ", ".join(f"{count} by {way}" for way, count in matched.by.items())
    yield f"{count(matched.matched, 'activation')} matched{f' ({ways})' if ways else ''}"
    for side, keys in (("torch", matched.torch_alone), ("keras", matched.keras_alone)):
        if keys:
            yield f"{len(keys)} only in {side}: {_few(keys)}"
    for name, layout in matched.layouts.items():
        yield f"output {name} by its layers: {layout}"


def _accepted(expected: list[Cause]) -> Iterator[str]:
    """Yield a line for each cause and reason of accepted differences, with all places where it occurs."""
    places: dict[tuple[str, str], list[str]] = {}
    for cause in expected:
        places.setdefault((cause.id, cause.reason), []).append(cause.where)
    for (name, reason), where in places.items():
        yield f"accepted: {name} at {_few(where)}: {reason}"


def _few(names: list[str]) -> str:
    return f"{', '.join(names[:MOST_NAMES])}{', ...' if len(names) > MOST_NAMES else ''}"
