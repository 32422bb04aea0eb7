"""The report as a table: one row per case, then what went wrong where."""

from typing import TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from parity.results import CaseResult, Check, Divergence, Report, Side

# Column headings of the kinds of tensors, in execution order.
KINDS = {
    "activation": "act",
    "loss": "los",
    "gradient": "grd",
    "update": "upd",
    "parameter": "par",
    "buffer": "buf",
    "optimizer_state": "opt",
}
COLOURS = {"match": "green", "subprecision": "yellow", "diverged": "red", "error": "red", "skipped": "dim"}
PIPE_WIDTH = 140  # columns where there is no terminal
SHORTEST = 8  # columns that the name of a tensor gets at least


def show(report: Report, file: TextIO) -> None:
    """Print the table, the failures and the summary."""
    console = Console(file=file, markup=False, highlight=False, emoji=False)
    if not console.is_terminal:
        console.width = PIPE_WIDTH
    for name, facts in report.environment.items():
        said = ", ".join(f"{key} {value}" for key, value in facts.items() if key != "devices")
        console.print(f"{name}: {said}; {', '.join(facts['devices'])} (physical)", style="dim")
    console.print(_table(report, console.width))
    for case in report.cases:
        _explain(case, console)
    counts = ", ".join(f"{count} {verdict}" for verdict, count in report.summary.items() if count)
    console.print(f"{len(report.cases)} {'case' if len(report.cases) == 1 else 'cases'}: {counts}")
    console.print("bits: worst of a kind, in float64 against the noise of the runs; = equal to a few ulp", style="dim")


def _table(report: Report, width: int) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    for heading in ("case", "verdict", *KINDS.values(), "worst", "s"):
        table.add_column(heading, justify="right" if heading in ("s", *KINDS.values()) else "left", no_wrap=True)
    rows = [_row(case) for case in report.cases]
    longest = [max(map(len, column)) for column in zip(*rows, strict=True)]
    others = sum(max(length, 3) + 1 for place, length in enumerate(longest) if place != len(longest) - 2)
    for case, row in zip(report.cases, rows, strict=True):
        verdict = Text(case.verdict, style=COLOURS[case.verdict])
        name = _fitted(row[-2], max(width - others, SHORTEST))
        table.add_row(row[0], verdict, *row[2:-2], name, row[-1])
    return table


def _row(case: CaseResult) -> list[str]:
    bits = [_bits(case.checks.get(kind)) for kind in KINDS]
    seconds = "+".join(f"{value:.0f}" for value in case.seconds.values())
    return [case.case, case.verdict, *bits, _worst_name(case), seconds]


def _bits(check: object) -> str:
    if not isinstance(check, Check):
        return "-"
    if check.verdict == "diverged" and check.worst_bits is None:
        return "!"
    return "=" if check.worst_bits is None else str(round(check.worst_bits))


def _worst_name(case: CaseResult) -> str:
    """The tensor that diverged first, or else the one with the fewest bits."""
    if case.first_divergence:
        return case.first_divergence.name
    checks = [check for check in case.checks.values() if isinstance(check, Check) and check.worst_bits is not None]
    worst = min(checks, key=lambda check: check.worst_bits or 0.0, default=None)
    return (worst and worst.worst_name) or ""


def _fitted(name: str, width: int) -> str:
    """The end of a name says more than its beginning."""
    return name if len(name) <= width else "…" + name[1 - width :]


def _explain(case: CaseResult, console: Console) -> None:
    if case.verdict != "match":
        console.print(f"\n{case.case}: {case.verdict}", style=COLOURS[case.verdict])
        if case.first_divergence:
            _place(case.first_divergence, console)
        else:
            console.print(f"  {case.reason}")
    for finding in case.findings:
        console.print(f"\n{case.case}: {finding.id} at {finding.where}: {finding.message}")


def _place(first: Divergence, console: Console) -> None:
    step = "before the first step" if first.step is None else f"step {first.step}"
    console.print(f"  {step}, {first.kind}, {first.name}")
    console.print(f"  {first.reason}")
    for name, side in first.sides.items():
        console.print(f"    {name:10}{_side(side, first.index)}")


def _side(side: Side, index: list[int]) -> str:
    numbers = (side.smallest, side.largest, side.mean)
    low, high, mean = ("-" if number is None else f"{number:.6g}" for number in numbers)
    at = "" if side.value is None else f", at {index} {side.value:.17g}"
    return f"{side.dtype}{side.shape} min {low}, max {high}, mean {mean}{at}"
