"""The part of the report that only pairs have: what was matched, promoted, assumed, accepted, suggested and repaired.

Its lines also tell of variations of the inputs, and of the model's branches that no input reached.
"""

import shlex
import textwrap
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from parity.core.groups import by_key
from parity.core.wording import agree, count, listed
from parity.pairs.weights import show as weights
from parity.report.output import Console
from parity.results import RANKING, CaseResult, Variation

MOST_NAMES = 6  # names that a list of tensors or modules prints at most
LONGEST = 100  # characters of a variation's reason; the first failing one's is also the pair's, and printed in full
FEW_NAMES = 3  # names of variations or branches; the JSON has all of them


def show(case: CaseResult, console: Console) -> None:
    """Print this part of the report; for a built-in case print nothing."""
    remarks = list(lines(case))
    if remarks:
        console.print(f"\n{case.case}:")
    for remark in remarks:
        console.fold(f"  {remark}")
    suggest(case, console)
    if case.mapping:
        console.print(f"\nweights of {case.case}:\n{weights.table(case.mapping)}")
    if case.mapping and case.mapping.entries:
        rules = weights.as_toml(case.mapping)
        console.print(f"\nthe same as [[weights]] rules, to copy into the pair file and edit:\n\n{rules}")


def suggest(case: CaseResult, console: Console) -> None:
    """Print the sections that accept the differences with a known cause, to be added to the pair file."""
    for suggestion in case.suggestions:
        console.print()
        console.fold(f"  {suggestion.why}; add to the pair file (or let --accept add it):")
        console.print(f"\n{suggestion.toml}", soft_wrap=True, end="")


def lines(case: CaseResult) -> Iterator[str]:
    """Yield the remarks on a case, a line each, without what its reason says."""
    if matched := case.matched:
        rules = ", ".join(f"{number} by {rule}" for rule, number in matched.by.items())
        yield f"{count(matched.matched, 'activation')} matched{f' ({rules})' if rules else ''}"
        for side, keys in (("torch", matched.torch_alone), ("keras", matched.keras_alone)):
            if keys:
                yield f"{len(keys)} only in {side}: {listed(keys, MOST_NAMES)}"
        for name, layout in matched.layouts.items():
            yield f"output {name} by its layers or the inputs: {layout}"
    for what, names in (
        ("the model computes these in lower precision; promoted to float64 in the high run", case.lifted),
        ("modules whose weights could not be told apart; matched in the order of execution", case.undecided),
    ):
        if names:
            yield f"{what}: {listed(names, MOST_NAMES)}"
    yield from (f"assumed: {sentence}" for sentence in case.assumptions if sentence not in case.reason)
    yield from (sentence for sentence in case.not_compared if sentence not in case.reason)
    for (name, reason), where in by_key(((cause.id, cause.reason), cause.where) for cause in case.expected).items():
        yield f"accepted: {name} at {listed(where, MOST_NAMES)}: {reason}"
    yield from coverage_lines(case)


def coverage_lines(case: CaseResult) -> Iterator[str]:
    """Yield a line that counts the variations, one for each that failed, and one for the coverage of branches.

    The variation that the case's reason names has no line of its own.
    """
    if case.variations:
        yield from _variations(case.variations, case.reason)
    if case.coverage:
        line = f"coverage: {case.coverage.reached} of {count(case.coverage.of, 'branch')}"
        missed = by_key((branch.branch, branch.where) for branch in case.coverage.branches if not branch.reached)
        places = ", ".join(f"{kind} at {listed(where, FEW_NAMES)}" for kind, where in missed.items())
        yield f"{line}; not reached: {places}" if missed else line


def _variations(variations: list[Variation], reason_of_case: str) -> Iterator[str]:
    if [variation.name for variation in variations] == ["all"]:
        yield f"no variations: {variations[0].skipped}"
        return
    counts = Counter(variation.verdict for variation in variations)
    parts = [f"{counts[verdict]} {verdict}" for verdict in RANKING if counts[verdict]]
    if left := [variation for variation in variations if variation.verdict == "skipped"]:
        by_reason = by_key((variation.skipped, variation.name) for variation in left)
        reasons = "; ".join(f"{listed(names, FEW_NAMES)}: {reason}" for reason, names in by_reason.items())
        parts.append(f"{len(left)} left out ({reasons})")
    yield f"{count(len(variations), 'variation')}: {', '.join(parts)}"
    for variation in variations:
        if variation.verdict in RANKING[2:] and f" {variation.name}: " not in reason_of_case:
            reason = textwrap.shorten(variation.reason, LONGEST, placeholder=" ...")
            yield f"  {variation.name}: {variation.verdict}: {reason}"


def show_repairs(case: CaseResult, console: Console) -> None:
    """Print what the scripts of a reproduction said, and each edit of a repair with what came of it."""
    for line in case.reproduced:
        console.print(f"  reproduced: {line}")
    repair = case.repair
    if repair is None:
        return
    for edit in repair.edits:
        outcome = "accepted" if edit.accepted else f"refused: {edit.why}"
        console.print(f"  repair: {edit.cause} at {edit.where}, {edit.file}:{edit.line}: {outcome}")
        console.print(f"    - {edit.before}")
        console.print(f"    + {edit.after}")
    for line in repair.left:
        console.print(f"  repair: {line}")
    outcome = f"no edit was accepted, and {repair.file} is empty"
    if number := sum(edit.accepted for edit in repair.edits):
        it, there = agree(number, "it"), "" if Path(repair.root) == Path.cwd() else f" in {repair.root}"
        edits, patch = count(number, "edit"), f"patch -p1 < {shlex.quote(repair.file)}"
        outcome = f"{repair.verdict} with {edits}; to make {it}{there}, {patch}"
    console.print(f"  repair: {outcome}")
