"""The sentences at the top of a report: the verdict, and the next thing to do."""

from collections.abc import Iterable, Sequence
from typing import Any

from parity.config.pair import INTERNAL_ERROR, UNKNOWN
from parity.details import Verdict
from parity.report.sides import sides_of
from parity.results import CaseResult, Report

MARKS: dict[str, str] = {
    "match": "✓",
    "subprecision": "≈",
    "inconclusive": "?",
    "diverged": "✗",
    "error": "!",
    "skipped": "-",
}
MEANINGS = {
    "match": "the same computation: in float64 the sides differ by no more than rounding explains",
    "subprecision": "they differ, but by less than float32 can show",
    "inconclusive": "nothing could be decided",
    "diverged": "two different computations",
    "error": "could not be run or compared",
    "skipped": "not run on this machine's devices",
}
WORST: tuple[Verdict, ...] = ("diverged", "error", "inconclusive", "subprecision")  # from what needs a reader most


def headline(report: Report) -> str:
    """Return the verdict on all cases in one sentence."""
    counts, sides = report.summary, both(report)
    compared = sum(counts.get(verdict, 0) for verdict in ("match", "subprecision", "inconclusive", "diverged"))
    if counts.get("diverged"):
        return f"{sides} do not compute the same in {_of(counts['diverged'], compared)}."
    if counts.get("error"):
        return f"{_cases(counts['error'])} could not be run, so the question is open there."
    if counts.get("inconclusive"):
        where = _of(counts["inconclusive"], compared)
        return f"Whether {sides.replace('The', 'the')} compute the same could not be decided in {where}."
    if not compared:
        return "Nothing was compared."
    if small := counts.get("subprecision"):
        return (
            f"{sides} agree to float32's precision in {_all(compared)}; {_differ(small)} by less than float32 can show."
        )
    return f"{sides} compute the same in {_all(compared)}."


def both(report: Report) -> str:
    """Return the names of both sides."""
    return "PyTorch and Keras" if set(report.environment) <= {"torch", "keras"} else "The two sides"


def main_case(cases: Sequence[CaseResult]) -> CaseResult | None:
    """Return the case that a reader should see first; None if none needs attention."""
    return next((case for verdict in WORST for case in cases if case.verdict == verdict), None)


def next_step(case: CaseResult | None, report: Report) -> str:
    """Return the next thing to do."""
    if case is None:
        compared = report.summary.get("match")
        return (
            "Nothing has to be done: keep this comparison as a test."
            if compared
            else "Choose cases that these devices can run."
        )
    if case.verdict == "error":
        return "Mend what the message says, then run the case again."
    if case.verdict == "subprecision" and case.suggestions:
        return f"{case.suggestions[0].why}. Accept the difference with --accept; it fails only with --strict."
    cause = _first_named(case.causes)
    if cause is not None:
        return f"{_change(cause)}{_or_accept(case)}"
    if case.verdict == "inconclusive":
        return "Give the case inputs, weights or steps with which it can be judged, then run it again."
    where = f" of {case.first_divergence.name}" if case.first_divergence else ""
    own = case.case.startswith("pair/")
    tool = ", or run it with --reproduce=DIR, which writes the module alone as a script for each side" if own else ""
    return f"No known cause explains it: compare the two implementations{where}{tool}."


def _first_named(causes: Iterable[dict[str, Any]]) -> dict[str, Any] | None:
    return next((cause for cause in causes if cause["id"] not in (UNKNOWN, INTERNAL_ERROR)), None)


def _change(cause: dict[str, Any]) -> str:
    place = f"in {cause['source']}" if cause.get("source") else f"at {cause['where']}"
    values = list(sides_of(cause).values())
    wanted = f": {values[0]} instead of {values[1]}" if len(values) == 2 else ""
    return f"Change the port's {cause['id'].replace('.', ' ').replace('_', ' ')} {place}{wanted}"


def _or_accept(case: CaseResult) -> str:
    if not case.case.startswith("pair/"):
        return "."
    accept = ", or accept the difference with --accept" if case.suggestions else ""
    return f". With --repair=FILE.diff the edit is found and tried for you{accept}."


def _of(count: int, total: int) -> str:
    return f"{count} of {_cases(total)}" if total > 1 else "the one case compared"


def _all(count: int) -> str:
    return f"all {count} cases that were compared" if count > 1 else "the one case that was compared"


def _differ(count: int) -> str:
    return "1 differs" if count == 1 else f"{count} differ"


def _cases(count: int) -> str:
    return f"{count} {'case' if count == 1 else 'cases'}"
