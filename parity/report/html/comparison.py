"""The page of a comparison: the first screen with the table of models and strategies, each case, the environment.

The tensors of a case are listed in groups of rows, one for each module.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple, get_args

from markupsafe import Markup

from parity.config import strategies as strategy_names
from parity.core.groups import by_key, depth_of, grouped
from parity.details import Compared, Details
from parity.report import html, words
from parity.report.html import plots, svg
from parity.report.words import extent_line, not_compared
from parity.results import CaseResult, Check, Report
from parity.trace import keys

PAIR = "pair/"
AROUND = 2  # tensors before and after one that is no match
MOST = 300  # tensors of one case that are shown because they are no match
FEW = 40  # rows that stand in one list
MOST_GROUPS = 24  # groups into which more rows are folded, by as many parts of the modules' paths as give no more
State = Literal["diverged", "matched", "alone"]


def render(report: Report) -> str:
    """Return the page of a report whose cases have their details."""
    banner = html.Banner(_verdict(report), words.MARKS[_verdict(report)], words.headline(report), report.command)
    sections = [
        ("overview", "Overview", _overview(report)),
        ("not-compared", "What was not compared", _not_compared(report)),
        ("cases", "Cases", Markup("").join(_cases(report))),
        ("environment", "Environment", html.part("environment", facts=_facts(report))),
    ]
    return html.render("Parity report", banner, sections, report)


def _verdict(report: Report) -> str:
    """Return the verdict that stands for the whole report: the one that most needs a reader."""
    if report.error:
        return "error"
    return next((verdict for verdict in (*words.WORST, "match") if report.summary.get(verdict)), "skipped")


def _overview(report: Report) -> Markup:
    case = words.main_case(report.cases)
    return html.part(
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
    return html.part("not_compared", line=extent_line(report), reasons=reasons, alone=alone)


def _cases(report: Report) -> Iterator[Markup]:
    """Yield the section of each case; of the built-in ones those that need no reader are folded."""
    first = words.main_case(report.cases)
    for number, case in enumerate(report.cases, start=1):
        sides = case.layout.sides if case.layout else {}
        details = case.details or Details(needed=0.0)
        numbers = listed(details.tensors)
        yield html.part(
            "case",
            number=number,
            is_open=case is first or len(report.cases) == 1,
            is_first=case is first,
            case=case,
            findings=words.findings(case),
            checks={kind: check for kind, check in case.checks.items() if isinstance(check, Check)},
            band=plots.noise_band(details, numbers),
            losses=plots.loss_curves(details.losses),
            apart=plots.largest_difference(details.losses),
            groups=groups(details, numbers),
            shown=len(numbers),
            left_out=max(sum(each.verdict != "match" for each in details.tensors) - MOST, 0),
            names=list(case.devices) or ["torch", "keras"],
            layout=case.layout,
            drawings={side: svg.drawing(side, layout) for side, layout in sides.items()},
            not_compared=not_compared(case) if case.extent else case.not_compared,
            remarks=list(words.remarks(case)),
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


class Row(NamedTuple):
    """A row: a tensor under its name on each side ("" if it has none), and how these were matched."""

    state: State
    torch: str
    keras: str
    by: str
    tensor: Compared | None


class Group(NamedTuple):
    """The rows of one module, folded together; of several groups the first with a row that is no match is open."""

    name: str
    rows: list[Row]
    is_open: bool = True

    @property
    def unequal(self) -> int:
        """Return how many rows are no match."""
        return sum(row.state == "diverged" for row in self.rows)


def listed(tensors: Sequence[Compared]) -> list[int]:
    """Return the numbers of the tensors to show: what is no match, its neighbours, and each module's fewest bits."""
    unequal = [number for number, each in enumerate(tensors) if each.verdict != "match"][:MOST]
    near = {neighbour for number in unequal for neighbour in range(number - AROUND, number + AROUND + 1)}
    bits = [math.inf if each.bits is None else each.bits for each in tensors]
    by_module = by_key((module(each), number) for number, each in enumerate(tensors))
    worst = (min(numbers, key=bits.__getitem__) for numbers in by_module.values())
    return sorted({*worst, *(neighbour for neighbour in near if 0 <= neighbour < len(tensors))})


def groups(details: Details, numbers: Iterable[int]) -> list[Group]:
    """Return the tensors of these numbers and those that stand alone on a side, by module, in execution order."""
    alone = (each for each in details.counterparts if not (each.torch and each.keras))
    rows = [*_rows(details, numbers), *(Row("alone", each.torch, each.keras, "", None) for each in alone)]
    if len(rows) <= FEW:
        return [Group("all modules", rows)] if rows else []
    depth = depth_of(list(map(_path, rows)), MOST_GROUPS)
    folded = [Group(*item) for item in grouped(rows, lambda row: ".".join(_path(row)[:depth])).items()]
    first = next((group for group in folded if group.unequal), None)
    return [group._replace(is_open=group is first) for group in folded]


def module(tensor: Compared) -> str:
    name = keys.plain(tensor.name)
    if tensor.kind in ("activation", "input", "sample", "loss"):
        return name
    weight = keys.parameter(tensor.kind, name)
    return weight.rpartition(".")[0] or weight or name


def _rows(details: Details, numbers: Iterable[int]) -> Iterator[Row]:
    by_torch = {name: each for each in details.counterparts for name in each.torch.split(", ") if each.torch}
    for number in numbers:
        tensor = details.tensors[number]
        state: State = "alone" if tensor.alone else "matched" if tensor.verdict == "match" else "diverged"
        # A weight's counterpart is found by its name, that of a module's output by the module's.
        is_slot, of_weight = tensor.kind == "optimizer_state", tensor.name.rpartition(".")[0]
        pair = by_torch.get(of_weight if is_slot else tensor.name.partition("@")[0])
        keras, by = (pair.keras, pair.by) if pair else (tensor.name, "name")
        torch = "" if tensor.alone in ("keras", "candidate") else tensor.name
        yield Row(state, torch, "" if tensor.alone in ("torch", "reference") else keras, by, tensor)


def _path(row: Row) -> list[str]:
    """Return the parts of the path of a row's module; Keras's are separated by slashes."""
    name = module(row.tensor) if row.tensor else (row.torch or row.keras).partition("#")[0]
    return name.replace("/", ".").split(".")
