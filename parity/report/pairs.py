"""What a comparison of a user's pair says beside the verdict: what corresponds, what was lifted, what is accepted."""

from collections.abc import Iterator
from typing import Any

from rich.console import Console

from parity.pairs import show as weights
from parity.report import coverage
from parity.results import CaseResult, Matched

MOST_NAMES = 6  # tensors or places of a kind that are printed


def show(case: CaseResult, console: Console) -> None:
    """Print it; nothing of a built-in case."""
    told = list(lines(case))
    for line in [f"\n{case.case}:", *(f"  {line}" for line in told)] if told else ():
        console.print(line)
    suggest(case, console)
    if case.mapping:
        console.print(f"\nweights of {case.case}:\n{weights.table(case.mapping)}")
    if case.mapping and case.mapping.entries:
        console.print(f"\nthe same for the pair's file, to be edited:\n\n{weights.as_toml(case.mapping)}")


def suggest(case: CaseResult, console: Console) -> None:
    """Print the sections for the pair's file that accept what is understood."""
    for each in case.suggestions:
        console.print(f"\n  {each.why}; in the pair's file (--accept writes it):", soft_wrap=True)
        console.print(f"\n{each.toml}", soft_wrap=True, end="")


def lines(case: CaseResult) -> Iterator[str]:
    """Remarks on one case."""
    if case.matched:
        yield from _matched(case.matched)
    for what, names in (
        ("computed in float32 on purpose, here in float64", case.lifted),
        ("weights that nothing tells apart, in the order of execution", case.undecided),
    ):
        if names:
            yield f"{what}: {_few(names)}"
    yield from (f"assumed: {sentence}" for sentence in case.assumptions)
    yield from case.not_compared
    yield from _accepted(case.expected)
    yield from coverage.lines(case)


def _matched(found: Matched) -> Iterator[str]:
    ways = ", ".join(f"{count} by {way}" for way, count in found.by.items())
    plural = "" if found.matched == 1 else "s"
    yield f"{found.matched} activation{plural} matched{f' ({ways})' if ways else ''}"
    for side, keys in (("torch", found.torch_alone), ("keras", found.keras_alone)):
        if keys:
            yield f"{len(keys)} of {side} alone: {_few(keys)}"
    for name, layout in found.layouts.items():
        yield f"output {name} by its layers: {layout}"


def _accepted(expected: list[dict[str, Any]]) -> Iterator[str]:
    """What is accepted, each reason once with its places."""
    places: dict[tuple[str, str], list[str]] = {}
    for cause in expected:
        places.setdefault((cause["id"], cause["reason"]), []).append(cause["where"])
    for (name, reason), where in places.items():
        yield f"accepted: {name} at {_few(where)}: {reason}"


def _few(names: list[str]) -> str:
    return f"{', '.join(names[:MOST_NAMES])}{', ...' if len(names) > MOST_NAMES else ''}"
