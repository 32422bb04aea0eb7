"""The report on a terminal: a table with one row per case, then the details of what failed."""

import io
from collections import Counter
from collections.abc import Iterator
from typing import Any, TextIO

from rich.table import Table
from rich.text import Text

from parity.report import layouts, pairs
from parity.report.console import Console
from parity.results import CaseResult, Check, Divergence, LayoutCheck, Report, Side

# The kinds of tensors in execution order, with the headings of their columns.
KINDS = {
    "activation": "act",
    "loss": "los",
    "gradient": "grd",
    "update": "upd",
    "parameter": "par",
    "buffer": "buf",
    "optimizer_state": "opt",
}
COLOURS = {
    "match": "green",
    "subprecision": "yellow",
    "inconclusive": "magenta",
    "diverged": "red",
    "error": "red",
    "skipped": "dim",
}
LEGEND = (
    "bits: worst of a kind, in float64 against the noise of the runs; = equal to a few ulp",
    "lay: device layouts, ≈ different as declared; sgl: bits against training on a single device",
)
PIPE_WIDTH = 140  # columns if the output is no terminal
SHORTEST = 8  # the column of tensor names is left out if it would be narrower
COMMON = ("id", "where", "evidence")  # the fields that all causes have; the others are the sides' values
MOST_LINES = 8  # layout differences that are printed at most


def show(report: Report, file: TextIO) -> None:
    """Print a report: the environment, the table, the details of failures, the summary and the legend."""
    console = Console(file, PIPE_WIDTH)
    for name, facts in report.environment.items():
        environment = ", ".join(f"{key} {value}" for key, value in facts.items())
        console.print(f"{name}: {environment}; {_devices(report, name)}", style="dim")
    console.print(_table(report, console.width))
    for case in report.cases:
        _explain(case, console)
        pairs.show(case, console)
        layout = case.checks.get("layout")
        if isinstance(layout, LayoutCheck) and layout.sides:
            layouts.show(case.case, layout.sides, console)
    counts = ", ".join(f"{count} {verdict}" for verdict, count in report.summary.items() if count)
    nothing = "; nothing was compared" if report.status(strict=False) == 2 else ""
    console.print(f"{len(report.cases)} {'case' if len(report.cases) == 1 else 'cases'}: {counts}{nothing}")
    for line, count in _changed(report).items():
        console.print(f"changed since the golden traces of {count} {'case' if count == 1 else 'cases'}: {line}")
    for line in (*LEGEND, *_excused(report)):
        console.print(line, style="dim")
    for line, count in _declared(report).items():
        console.print(f"declared in {count} {'case' if count == 1 else 'cases'}: {line}", style="dim")


def _changed(report: Report) -> Counter[str]:
    """Return what changed since golden traces were recorded (versions, devices), and for how many of them."""
    return Counter(
        f"{fact} {before or 'none'} → {now or 'none'}"
        for case in report.cases
        for fact, (before, now) in case.changed.items()
    )


def _excused(report: Report) -> Iterator[str]:
    """Yield the explanation of the mark ~, if any tensors match only by the witness."""
    checks = [(case, check) for case in report.cases for check in case.checks.values() if isinstance(check, Check)]
    excused = [(case, check) for case, check in checks if check.excused]
    if excused:
        case, most = max(excused, key=lambda pair: pair[1].excused_most or 0.0)
        yield (
            f"~ further apart, but no further than rounding alone grows there (the witness): "
            f"{sum(check.excused for _, check in excused)} tensors, "
            f"at most {most.excused_most or 0.0:.1e} of the largest value ({case.case})"
        )


def text(case: CaseResult) -> str:
    """Return the text for a failing test: where the case differs, why, and what to add to a pair file to accept it."""
    file = io.StringIO()
    console = Console(file, PIPE_WIDTH)
    _explain(case, console)
    pairs.suggest(case, console)
    return file.getvalue().strip("\n")


def _declared(report: Report) -> Counter[str]:
    """Return the declared differences of layouts, with the number of cases in which each occurs."""
    checks = [case.checks.get("layout") for case in report.cases]
    return Counter(line for check in checks if isinstance(check, LayoutCheck) for line in check.declared)


def _devices(report: Report, side: str) -> str:
    """Return the kinds of devices that one side ran on, with the number of cases for each."""
    kinds = Counter(kind for case in report.cases for kind in set(case.devices.get(side, ())))
    return ", ".join(f"{kind} in {count}" for kind, count in kinds.items()) or "no case"


def _table(report: Report, width: int) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    rows = [_row(case) for case in report.cases]
    longest = [max(map(len, column)) for column in zip(*rows, strict=True)]
    room = width - sum(max(length, 3) + 1 for length in longest[:-1])
    headings = ("case", "verdict", *KINDS.values(), "lay", "sgl", "s", *(["worst"] if room >= SHORTEST else []))
    for heading in headings:
        left = heading in ("case", "verdict", "worst")
        # If the columns do not fit, fold the names of the cases over several lines, and never cut off a number.
        table.add_column(heading, justify="left" if left else "right", no_wrap=heading != "case", overflow="fold")
    for case, row in zip(report.cases, rows, strict=True):
        verdict = Text(case.verdict, style=COLOURS[case.verdict])
        name = [_fitted(row[-1], room)] if room >= SHORTEST else []
        table.add_row(row[0], verdict, *row[2:-1], *name)
    return table


def _row(case: CaseResult) -> list[str]:
    bits = [_bits(case.checks.get(kind)) for kind in KINDS]
    seconds = "+".join(f"{value:.0f}" for value in case.seconds.values())
    marks = _layout(case.checks.get("layout")), _single(case)
    return [case.case, case.verdict, *bits, *marks, seconds, _worst_name(case)]


def _layout(check: object) -> str:
    """Return the mark for a layout check: "=" equal, "≈" different as declared, "!" different."""
    if not isinstance(check, LayoutCheck):
        return "-"
    return "!" if check.differences else "≈" if check.declared else "="


def _single(case: CaseResult) -> str:
    """Return the fewest bits of either side against its own training on a single device."""
    compared = [against for against in case.against_single.values() if not against.skipped]
    if not compared:
        return "-"
    bits = [against.worst_bits for against in compared if against.worst_bits is not None]
    return str(round(min(bits))) if bits else "="


def _bits(check: object) -> str:
    if not isinstance(check, Check):
        return "-"
    if check.verdict == "diverged" and check.worst_bits is None:
        return "!"
    if check.worst_bits is None:
        return "~" if check.excused else "="
    return str(round(check.worst_bits))


def _worst_name(case: CaseResult) -> str:
    """Return the name of the tensor that diverged first, or else of the one with the fewest bits."""
    if case.first_divergence:
        return case.first_divergence.name
    checks = [check for check in case.checks.values() if isinstance(check, Check) and check.worst_bits is not None]
    worst = min(checks, key=lambda check: check.worst_bits or 0.0, default=None)
    return (worst and worst.worst_name) or ""


def _fitted(name: str, width: int) -> str:
    """Return a name, cut off at its beginning if it is too long: a module's path differs most at its end."""
    return name if len(name) <= width else "…" + name[1 - width :]


def _explain(case: CaseResult, console: Console) -> None:
    if case.verdict != "match":
        console.print(f"\n{case.case}: {case.verdict}", style=COLOURS[case.verdict])
        if case.first_divergence:
            _explain_divergence(case.first_divergence, console)
        if case.reason and not _is_repeated(case):
            console.print(f"  {case.reason}")
        _causes(case, console)
        _explain_devices(case, console)
    for finding in case.findings:
        console.print(f"\n{case.case}: {finding.id} at {finding.where}: {finding.message}")


def _is_repeated(case: CaseResult) -> bool:
    """Return whether the reason is printed with the first divergence, the layouts, or the single-device check."""
    layout = case.checks.get("layout")
    printed = [case.first_divergence.reason] if case.first_divergence else []
    printed += layout.differences if isinstance(layout, LayoutCheck) else []
    return case.reason in printed or any(case.reason == against.reason for against in case.against_single.values())


def _causes(case: CaseResult, console: Console) -> None:
    """Print each cause once, with the values of both sides, its first place, and the number of further places."""
    alike: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for cause in case.causes:
        sides = ", ".join(
            f"{name} {value}" for name, value in cause.items() if name not in COMMON and value is not None
        )
        alike.setdefault((cause["id"], sides), []).append(cause)
    for (name, sides), causes in alike.items():
        more = f" and {len(causes) - 1} more" if len(causes) > 1 else ""
        console.print(f"  cause: {name} at {causes[0]['where']}{more}{': ' if sides else ''}{sides}", style="bold")
        console.print(f"    {causes[0]['evidence']}")


def _explain_devices(case: CaseResult, console: Console) -> None:
    """Print the differences of layouts, and where a side differs from its own training on a single device."""
    layout = case.checks.get("layout")
    if isinstance(layout, LayoutCheck):
        for line in layout.differences[:MOST_LINES]:
            console.print(f"  {line}")
        if len(layout.differences) > MOST_LINES:
            console.print(f"  and {len(layout.differences) - MOST_LINES} more")
    for side, against in case.against_single.items():
        if against.verdict != "match":
            console.print(
                f"  {side}, compared with its own training on a single device: {against.verdict}: {against.reason}"
            )


def _explain_divergence(first: Divergence, console: Console) -> None:
    """Print where the first divergence is, why it is one, and the statistics of both sides."""
    step = "before the first step" if first.step is None else f"step {first.step}"
    replica = f", replica {first.replica}" if first.replica else ""
    console.print(f"  {step}, {first.kind}, {first.name}{replica}")
    console.print(f"  {first.reason}")
    for name, side in first.sides.items():
        console.print(f"    {name:10}{_side(side, first.index)}")


def _side(side: Side, index: list[int]) -> str:
    numbers = (side.smallest, side.largest, side.mean)
    low, high, mean = ("-" if number is None else f"{number:.6g}" for number in numbers)
    at = "" if side.value is None else f", at {index} {side.value:.17g}"
    return f"{side.dtype}{side.shape} min {low}, max {high}, mean {mean}{at}"
