"""What a pair's report says of the inputs that nobody gave, and of the branches that no input reached."""

import textwrap
from collections import Counter
from collections.abc import Iterator

from parity.results import RANKING, CaseResult, Coverage, Variation

LONGEST = 100  # characters of a reason; the first one is told in full as the pair's
MOST_NAMES = 3  # variations or places of a kind that are printed; all of them are in the JSON


def lines(case: CaseResult) -> Iterator[str]:
    """Yield a line for the variations, one for each that did not pass, and one for the coverage."""
    if case.variations:
        yield from _variations(case.variations)
    if case.coverage:
        yield _coverage(case.coverage)


def _variations(variations: list[Variation]) -> Iterator[str]:
    if [one.name for one in variations] == ["all"]:
        yield f"no variations: {variations[0].skipped}"
        return
    counts = Counter(one.verdict for one in variations)
    said = [f"{counts[verdict]} {verdict}" for verdict in RANKING if counts[verdict]]
    if left := [one for one in variations if one.verdict == "skipped"]:
        said.append(f"{len(left)} left out ({_reasons(left)})")
    plural = "" if len(variations) == 1 else "s"
    yield f"{len(variations)} variation{plural}: {', '.join(said)}"
    for one in variations:
        if one.verdict in RANKING[2:]:
            yield f"  {one.name}: {one.verdict}: {textwrap.shorten(one.reason, LONGEST, placeholder=' ...')}"


def _reasons(left: list[Variation]) -> str:
    """The names by what became of them; what a side said is in the JSON."""
    by_reason: dict[str, list[str]] = {}
    for one in left:
        by_reason.setdefault(one.skipped, []).append(one.name)
    return "; ".join(f"{_few(names)}: {reason}" for reason, names in by_reason.items())


def _coverage(found: Coverage) -> str:
    """How many branches were reached, and the others by what they are."""
    line = f"coverage: {found.reached} of {found.of} branches"
    missed: dict[str, list[str]] = {}
    for one in found.branches:
        if not one.reached:
            missed.setdefault(one.branch, []).append(one.where)
    places = ", ".join(f"{branch} at {_few(where)}" for branch, where in missed.items())
    return f"{line}; not reached: {places}" if missed else line


def _few(names: list[str]) -> str:
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return f"{', '.join(names[:MOST_NAMES])}{more}"
