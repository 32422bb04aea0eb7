"""Output as Markdown, as GitHub shows it: the summary of a workflow's step, or a comment."""

import html
import re
from collections.abc import Iterable, Iterator, Sequence

from parity.report import words
from parity.report.words import MARKS, extent_line, headline, main_case, next_step, sides_in_words
from parity.results import CaseResult, Divergence, Report

MOST = 50  # rows of a table; a summary may have a megabyte
SPECIAL = re.compile(r"([\\`*_{}\[\]#|~])")


def comparison(report: Report) -> str:
    """Return the summary of a comparison."""
    case = main_case(report.cases)
    others = [each for each in report.cases if each is not case and each.verdict not in ("match", "skipped")]
    counts = ", ".join(f"{MARKS[verdict]} {count} {verdict}" for verdict, count in report.summary.items() if count)
    return document(
        headline(report),
        [f"The run ended early: {escaped(report.error)}"] if report.error else [],
        [counts] if counts else [],
        _first(case, report) if case else [],
        table(("also", "verdict", "where", "cause"), map(_row, others)) if others else [],
        [f"{escaped(line[0].upper() + line[1:])}."] if (line := extent_line(report)) else [],
    )


def document(heading: str, *paragraphs: Iterable[str]) -> str:
    """Return a heading, and below it the paragraphs of all parts."""
    return "\n\n".join([f"### {escaped(heading)}", *(text for part in paragraphs for text in part)]) + "\n"


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return a table; its cells are Markdown already."""
    cells = list(rows)
    lines = [headings, ["---"] * len(headings), *cells[:MOST]]
    more = [f"and {len(cells) - MOST} more"] if len(cells) > MOST else []
    return ["\n".join(f"| {' | '.join(line)} |" for line in lines), *more]


def escaped(text: str) -> str:
    """Return a text in one line in which Markdown and HTML find nothing to interpret."""
    return SPECIAL.sub(r"\\\1", html.escape(" ".join(text.split()), quote=False))


def block(text: str) -> str:
    """Return a text as a block of code, behind a fence that does not occur in it."""
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence}\n{text}\n{fence}"


def _first(case: CaseResult, report: Report) -> Iterator[str]:
    """Yield what a reader should see first: where a case differs, the values, the cause, and what to do."""
    first = case.first_divergence
    place = f", {words.when(first)}: {_tensor(first)}" if first else ""
    yield f"**{escaped(case.case)}**: {case.verdict}{place}"
    reason = first.reason if first else case.reason
    yield escaped(f"{reason} {words.meaning(reason)}")
    if first and any(side.value is not None for side in first.sides.values()):
        values = ((escaped(name), f"{side.value!r}", escaped(side.dtype)) for name, side in first.sides.items())
        yield from table(("side", f"value at {first.index}", "type"), values)
    for cause in case.causes[:1]:
        yield f"Cause: {_cause(case)}. {escaped(cause.evidence)}"
    yield f"Next: {escaped(next_step(case, report))}"
    yield block(case.command or report.command)


def _row(case: CaseResult) -> tuple[str, str, str, str]:
    where = _tensor(case.first_divergence) if case.first_divergence else escaped(case.reason[:200])
    return escaped(case.case), f"{MARKS[case.verdict]} {case.verdict}", where, _cause(case)


def _tensor(first: Divergence) -> str:
    tensor = words.tensor(first)
    name = f" <code>{escaped(tensor.name)}</code>" if tensor.name else ""
    return f"{tensor.what}{name}{escaped(tensor.rest)}"


def _cause(case: CaseResult) -> str:
    if not case.causes:
        return ""
    cause = case.causes[0]
    sides = sides_in_words(cause)
    return escaped(f"{cause.id} at {cause.where}{': ' if sides else ''}{sides}")
