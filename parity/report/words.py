"""The sentences that reports share: the verdict, the next thing to do, how much was compared, what each side does.

And those on pairs alone: what was matched, promoted, assumed and accepted, the variations of the inputs, and the
branches that no input reached.
"""

import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from parity.config.pair import UNNAMED
from parity.core.groups import by_key
from parity.core.wording import count, listed
from parity.details import Verdict
from parity.results import RANKING, CaseResult, Cause, Divergence, Finding, Report, Variation
from parity.trace.keys import STAY_ROUNDED, Words, in_words, key
from parity.verdict.low_runs import NOISE

# By verdict: its mark, its colour on a terminal, what it means.
VERDICTS = {
    "match": ("✓", "green", "the same computation: in float64 the sides differ by no more than rounding explains"),
    "subprecision": ("≈", "yellow", "they differ, but by less than float32 can show"),
    "inconclusive": ("?", "magenta", "nothing could be decided"),
    "diverged": ("✗", "red", "two different computations"),
    "error": ("!", "red", "could not be run or compared"),
    "skipped": ("-", "dim", "not run on this machine's devices"),
}
MARKS, COLOURS, MEANINGS = ({verdict: said[at] for verdict, said in VERDICTS.items()} for at in range(3))
BITS = re.compile(r" bits, \d+ needed$")
WORST: tuple[Verdict, ...] = ("diverged", "error", "inconclusive", "subprecision")  # from what needs a reader most
MOST_NAMES = 6  # names that a list of tensors or modules prints at most
LONGEST = 100  # characters of a variation's reason; the first failing one's is also the pair's, and printed in full
FEW_NAMES = 3  # names of variations or branches; the JSON has all of them


def headline(report: Report) -> str:
    """Return the verdict on all cases in one sentence."""
    sides = "PyTorch and Keras" if set(report.environment) <= {"torch", "keras"} else "The two sides"
    counts = report.summary
    compared = sum(counts.get(verdict, 0) for verdict in ("match", "subprecision", "inconclusive", "diverged"))
    if counts.get("diverged"):
        return f"{sides} do not compute the same in {_of(counts['diverged'], compared)}."
    if counts.get("error"):
        return f"{count(counts['error'], 'case')} could not be run, so the question is open there."
    if counts.get("inconclusive"):
        where = _of(counts["inconclusive"], compared)
        return f"Whether {sides.replace('The', 'the')} compute the same could not be decided in {where}."
    if not compared:
        return "Nothing was compared."
    if small := counts.get("subprecision"):
        differ = "1 differs" if small == 1 else f"{small} differ"
        return f"{sides} agree to float32's precision in {_all(compared)}; {differ} by less than float32 can show."
    return f"{sides} compute the same in {_all(compared)}."


def when(first: Divergence) -> str:
    return "before the first step" if first.step is None else f"step {first.step}"


def tensor(first: Divergence) -> Words:
    words = in_words(first.kind, first.name, first.module)
    return words._replace(rest=f"{words.rest}, replica {first.replica}") if first.replica else words


def divergence(first: Divergence) -> str:
    """Return where a divergence is: "step 0: output of module `1` (LayerNorm)"."""
    return f"{when(first)}: {tensor(first)}"


def meaning(reason: str) -> str:
    """Return what the bits at the end of a reason mean, for who meets them for the first time; "" without bits."""
    return "(n bits: 2^n times smaller than what rounding makes)" if BITS.search(reason) else ""


def findings(case: CaseResult) -> list[Finding]:
    """Return the findings of a case, without those that say what its first divergence does: too much noise there."""
    first = case.first_divergence
    place = first and key(first.kind, first.name)
    return [finding for finding in case.findings if finding.id != NOISE or finding.where != place]


def main_case(cases: Sequence[CaseResult]) -> CaseResult | None:
    """Return the case that a reader should see first; None if none needs attention."""
    return next((case for verdict in WORST for case in cases if case.verdict == verdict), None)


def next_step(case: CaseResult | None, report: Report) -> str:
    if case is None and report.summary.get("match"):
        return "Nothing has to be done: keep this comparison as a test."
    if case is None:
        return "Choose cases that these devices can run."
    if case.verdict == "error":
        return "Mend what the message says, then run the case again."
    if case.verdict == "subprecision" and case.suggestions:
        return f"{case.suggestions[0].why}. Accept the difference with --accept; it fails only with --strict."
    cause = next((cause for cause in case.causes if cause.id not in UNNAMED), None)
    is_own = case.case.startswith("pair/")
    if cause is not None:
        at, values = f"in {cause.source}" if cause.source else f"at {cause.where}", list(sides_of(cause).values())
        wanted = f": {values[0]} instead of {values[1]}" if len(values) == 2 else ""
        accept = ", or accept the difference with --accept" if case.suggestions else ""
        more = f" With --repair=FILE.diff the edit is found and tried for you{accept}." if is_own else ""
        return f"Change the port's {cause.id.replace('.', ' ').replace('_', ' ')} {at}{wanted}.{more}"
    if case.verdict == "inconclusive":
        return "Give the case inputs, weights or steps with which it can be judged, then run it again."
    first = case.first_divergence
    where = f" of {first.name}" if first else ""
    tool = ", or run it with --reproduce=DIR, which writes the module alone as a script for each side" if is_own else ""
    return f"No known cause explains it: compare the two implementations{where}{tool}."


def _of(number: int, total: int) -> str:
    return f"{number} of {count(total, 'case')}" if total > 1 else "the one case compared"


def _all(number: int) -> str:
    return f"all {number} cases that were compared" if number > 1 else "the one case that was compared"


def sides_of(cause: Cause) -> dict[str, str]:
    """Return what each side does, by name, also a None (limit off, default taken); nothing if both are None."""
    values = cause.sides
    return {side: str(value) for side, value in values.items()} if any(v is not None for v in values.values()) else {}


def sides_in_words(cause: Cause) -> str:
    """Return what each side does in words: "torch 1e-05, keras 1e-06"."""
    return ", ".join(f"{side} {value}" for side, value in sides_of(cause).items())


def extent_line(report: Report) -> str:
    """Return the line for all cases that were compared; "" if there are none."""
    extents = [case.extent for case in report.cases if case.extent]
    if not extents:
        return ""
    alone, not_promoted = _by_side(each.alone for each in extents), _by_side(each.not_promoted for each in extents)
    modes = Counter(mode for extent in extents for mode in extent.not_run)
    parts = [
        f"compared: {_least('parameters', report)}, {_least('activations', report)}",
        *(f"{count(number, 'tensor')} only in {side}" for side, number in alone.items()),
        *(f"{count(number, 'module')} of {side} not in float64" for side, number in not_promoted.items()),
        *(f"{mode} not run in {count(number, 'case')}" for mode, number in modes.items()),
    ]
    return "; ".join(parts)


def _least(of: str, report: Report) -> str:
    """Return the smallest share of any case, with the case's name where it is not all."""
    known = [(getattr(case.extent, of).percent, case.case) for case in report.cases if case.extent]
    shares = [(share, case) for share, case in known if share is not None]
    if not shares:
        return f"no {of}"
    least, case = min(shares)
    return f"{least:g}% of the {of}" if least == 100 else f"at least {least:g}% of the {of} ({case})"


def _by_side(tables: Iterable[dict[str, list[str]]]) -> Counter[str]:
    """Return how many names all tables together have for each side."""
    return Counter(side for names_by_side in tables for side, names in names_by_side.items() for _ in names)


def not_compared(case: CaseResult) -> list[str]:
    """Return what was not compared of one case, in sentences, each with its reason."""
    extent = case.extent
    if extent is None:
        nothing = case.verdict in ("error", "skipped")
        return [f"nothing was compared: {case.reason}"] if nothing else case.not_compared
    lines = [f"not run: {mode} ({reason})" for mode, reason in extent.not_run.items()]
    for side, names in extent.not_promoted.items():
        lines.append(f"{side} computed less than float64 in its high run in {', '.join(names)}")
    lines += [f"not promoted to float64: {note}" for note in case.lifted if STAY_ROUNDED in note]
    return [*lines, *case.not_compared]


def remarks(case: CaseResult) -> Iterator[str]:
    """Yield the remarks on a pair, a line each, without what its reason says."""
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
