"""The lines of a pair's report on variations of its inputs, and on the model's branches that no input reached."""

import textwrap
from collections import Counter
from collections.abc import Iterator

from parity.core.wording import count
from parity.results import RANKING, CaseResult, Coverage, Variation

LONGEST = 100  # characters of a variation's reason; the first failing one's is also the pair's, and printed in full
MOST_NAMES = 3  # names that a list prints at most; the JSON has all of them


def lines(case: CaseResult) -> Iterator[str]:
    """Yield a line that counts the variations, one for each that failed, and one for the coverage of branches.

    The variation that the case's reason names has no line of its own.
    """
    if case.variations:
        yield from _variations(case.variations, case.reason)
    if case.coverage:
        yield _coverage(case.coverage)


def _variations(variations: list[Variation], told: str) -> Iterator[str]:
    if [variation.name for variation in variations] == ["all"]:
        yield f"no variations: {variations[0].skipped}"
        return
    counts = Counter(variation.verdict for variation in variations)
    parts = [f"{counts[verdict]} {verdict}" for verdict in RANKING if counts[verdict]]
    if left := [variation for variation in variations if variation.verdict == "skipped"]:
        parts.append(f"{len(left)} left out ({_reasons(left)})")
    yield f"{count(len(variations), 'variation')}: {', '.join(parts)}"
    for variation in variations:
        if variation.verdict in RANKING[2:] and f" {variation.name}: " not in told:
            reason = textwrap.shorten(variation.reason, LONGEST, placeholder=" ...")
            yield f"  {variation.name}: {variation.verdict}: {reason}"


def _reasons(left: list[Variation]) -> str:
    """Return why variations were left out, with the names for each reason; error messages are only in the JSON."""
    by_reason: dict[str, list[str]] = {}
    for variation in left:
        by_reason.setdefault(variation.skipped, []).append(variation.name)
    return "; ".join(f"{_few(names)}: {reason}" for reason, names in by_reason.items())


def _coverage(coverage: Coverage) -> str:
    """Return how many branches were reached, and which were not, grouped by kind."""
    line = f"coverage: {coverage.reached} of {count(coverage.of, 'branch')}"
    missed: dict[str, list[str]] = {}
    for branch in coverage.branches:
        if not branch.reached:
            missed.setdefault(branch.branch, []).append(branch.where)
    places = ", ".join(f"{kind} at {_few(where)}" for kind, where in missed.items())
    return f"{line}; not reached: {places}" if missed else line


def _few(names: list[str]) -> str:
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return f"{', '.join(names[:MOST_NAMES])}{more}"
