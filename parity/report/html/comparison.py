"""The page of a comparison: the first screen with the table of models and strategies, each case, the environment."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, get_args

from markupsafe import Markup

from parity.config import strategies as strategy_names
from parity.core.groups import by_key
from parity.details import Details
from parity.report import pairs, words
from parity.report.html import band, losses, page, rows
from parity.report.words import extent_line, not_compared
from parity.results import CaseResult, Check, Report

PAIR = "pair/"


def render(report: Report) -> str:
    """Return the page of a report whose cases have their details."""
    banner = page.Banner(_verdict(report), words.MARKS[_verdict(report)], words.headline(report), report.command)
    sections = [
        page.Section("overview", "Overview", _overview(report)),
        page.Section("not-compared", "What was not compared", _not_compared(report)),
        page.Section("cases", "Cases", Markup("").join(_cases(report))),
        page.Section("environment", "Environment", page.part("environment", facts=_facts(report))),
    ]
    return page.render("Parity report", banner, sections, report)


def _verdict(report: Report) -> str:
    """Return the verdict that stands for the whole report: the one that most needs a reader."""
    if report.error:
        return "error"
    shown = [verdict for verdict in words.WORST if report.summary.get(verdict)]
    return shown[0] if shown else "match" if report.summary.get("match") else "skipped"


def _overview(report: Report) -> Markup:
    case = words.main_case(report.cases)
    return page.part(
        "overview",
        error=report.error,
        case=case,
        number=report.cases.index(case) + 1 if case else 0,
        cause=next(iter(case.causes), None) if case else None,
        step=words.next_step(case, report),
        command=(case.command if case else "") or report.command,
        matrix=matrix(report.cases),
        summary=report.summary,
    )


def _not_compared(report: Report) -> Markup:
    """Return what was not compared, with the cases for each reason."""
    numbered = list(enumerate(report.cases, start=1))
    reasons = by_key((sentence, (number, case.case)) for number, case in numbered for sentence in not_compared(case))
    alone = [(number, case.case, case.extent.alone) for number, case in numbered if case.extent and case.extent.alone]
    return page.part("not_compared", line=extent_line(report), reasons=reasons, alone=alone)


def _cases(report: Report) -> Iterator[Markup]:
    """Yield the section of each case; of the built-in ones those that need no reader are folded."""
    first = words.main_case(report.cases)
    for number, case in enumerate(report.cases, start=1):
        sides = case.layout.sides if case.layout else {}
        details = case.details or Details(needed=0.0)
        numbers = rows.listed(details.tensors)
        yield page.part(
            "case",
            number=number,
            is_open=case is first or len(report.cases) == 1,
            is_first=case is first,
            case=case,
            findings=words.findings(case),
            checks={kind: check for kind, check in case.checks.items() if isinstance(check, Check)},
            band=band.plot(details, numbers),
            losses=losses.plot(details.losses),
            apart=losses.largest_difference(details.losses),
            groups=rows.groups(details, numbers),
            shown=len(numbers),
            left_out=rows.left_out(details.tensors),
            names=list(case.devices) or ["torch", "keras"],
            layout=case.layout,
            drawings={side: rows.drawing(side, layout) for side, layout in sides.items()},
            not_compared=not_compared(case) if case.extent else case.not_compared,
            remarks=list(pairs.lines(case)),
        )


def _facts(report: Report) -> dict[str, Any]:
    """Return the facts of the environment: name, value on each side ("" if it has none), whether both sides' differ."""
    sides = report.environment
    names = dict.fromkeys(name for facts in sides.values() for name in facts)
    rows = [(name, [str(side.get(name, "")) for side in sides.values()]) for name in names]
    facts = [(name, values, all(values) and len(set(values)) > 1) for name, values in rows]
    return {"sides": list(sides), "facts": facts}


class Entry(NamedTuple):
    """A case in the table, with the number of its section, and what follows the strategy in its name, or ""."""

    number: int
    case: CaseResult
    variant: str


class Matrix(NamedTuple):
    """The built-in cases by model and strategy, and all others in a list."""

    strategies: list[str]
    models: dict[str, dict[str, list[Entry]]]
    others: list[Entry]


def matrix(cases: Sequence[CaseResult]) -> Matrix:
    """Return the table of cases, in the order of the report."""
    strategies: dict[str, None] = {}
    models: dict[str, dict[str, list[Entry]]] = {}
    others = []
    for number, case in enumerate(cases, start=1):
        model, _, rest = case.case.partition("/")
        strategy, _, variant = rest.partition("@")
        if not strategy or case.case.startswith(PAIR) or " " in rest:
            others.append(Entry(number, case, case.case.removeprefix(PAIR)))
            continue
        strategies[strategy] = None
        models.setdefault(model, {}).setdefault(strategy, []).append(Entry(number, case, variant))
    known = get_args(strategy_names.Name)
    order = sorted(strategies, key=lambda name: known.index(name) if name in known else len(known))
    return Matrix(order, models, others)
