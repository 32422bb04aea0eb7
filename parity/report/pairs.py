"""What a comparison of a user's pair says beside the verdict: what corresponds, what was lifted, what is accepted."""

from collections.abc import Iterator

from rich.console import Console

from parity.pairs import show as weights
from parity.results import CaseResult, Matched

MOST_NAMES = 6  # tensors or places of a kind that are printed


def show(case: CaseResult, console: Console) -> None:
    """Print it; nothing of a built-in case."""
    told = list(lines(case))
    for line in [f"\n{case.case}:", *(f"  {line}" for line in told)] if told else ():
        console.print(line)
    if case.mapping:
        console.print(f"\nweights of {case.case}:\n{weights.table(case.mapping)}")
        console.print(f"\nthe same for the pair's file, to be edited:\n\n{weights.as_toml(case.mapping)}")


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
    for cause in case.expected:
        yield f"accepted: {cause['id']} at {cause['where']}: {cause['reason']}"


def _matched(found: Matched) -> Iterator[str]:
    ways = ", ".join(f"{count} by {way}" for way, count in found.by.items())
    plural = "" if found.matched == 1 else "s"
    yield f"{found.matched} activation{plural} matched{f' ({ways})' if ways else ''}"
    for side, keys in (("torch", found.torch_alone), ("keras", found.keras_alone)):
        if keys:
            yield f"{len(keys)} of {side} alone: {_few(keys)}"


def _few(names: list[str]) -> str:
    return f"{', '.join(names[:MOST_NAMES])}{', ...' if len(names) > MOST_NAMES else ''}"
