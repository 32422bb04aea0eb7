"""The report on a terminal: a table with one row per case, then the details of what failed."""

import io
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TextIO

from rich.table import Table
from rich.text import Text

from parity.core.groups import grouped
from parity.core.wording import agree, count, fitted, listed
from parity.pairs.weights import show as weights
from parity.report import words
from parity.report.output import Console, show_layouts
from parity.report.words import COLOURS, extent_line, sides_in_words
from parity.results import ELSEWHERE, RANKING, CaseResult, Check, Divergence, LayoutCheck, Report, Side

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
LEGEND = (
    "numbers: bits by which the float64 difference is smaller than rounding, the fewest of a kind; = to a few ulp",
    "lay: device layouts, ≈ different as declared; sgl: the same for each side against its own single device",
)
PIPE_WIDTH = 140  # columns if the output is no terminal
VERDICT = max(map(len, COLOURS))  # columns of the verdict
SECONDS = 6  # of the seconds of both sides, e.g. 12+345
LONGEST = 32  # of the names of cases that are not known beforehand
SHORTEST = 8  # the column of tensor names is left out if it would be narrower
MOST_LINES = 8  # layout differences that are printed at most


class Printed:
    """A report that is printed while its cases are run: each row of the table as soon as it is known.

    `names`: those of the cases, which the first column must hold, to be set before one is printed. If the output cannot
    be written (a pipe whose reader has left, a full device), the cases are still run, so that nothing finished is lost:
    `end` raises the error. `layouts`: whether to print the device layouts.
    """

    def __init__(self, file: TextIO, layouts: bool = True) -> None:
        self.console = Console(file, PIPE_WIDTH)
        self.names: Sequence[str] = ()
        self._layouts = layouts
        self._widths: list[int] = []
        self._error: OSError | None = None

    def add(self, case: CaseResult) -> None:
        """Print the row of a case, below the headings if it is the first."""
        headings = ("case", "verdict", *KINDS.values(), "lay", "sgl", "s", "worst")
        if not self._widths:
            self._widths = _widths(self.names, self.console.width)
            self._print(self._line([Text(heading) for heading in headings], "bold"))
        row = [Text(cell) for cell in _row(case, self._widths[-1])]
        row[1].stylize(COLOURS[case.verdict])
        self._print(self._line(row))

    def end(self, report: Report) -> None:
        """Print failures, the summary, environment and legend. Raises OSError if this or a row could not be written."""
        if self._error:
            raise self._error
        console = self.console
        for case in report.cases:
            _explain(case, console)
            show_pair(case, console)
            if case.layout and case.layout.sides and self._layouts:
                show_layouts(case.case, case.layout.sides, console)
        counts = ", ".join(f"{number} {verdict}" for verdict, number in report.summary.items() if number)
        nothing = "" if any(report.summary.get(verdict) for verdict in RANKING) else "; nothing was compared"
        console.print(f"{count(len(report.cases), 'case')}: {counts}{nothing}")
        changes = [(fact, *values) for case in report.cases for fact, values in case.changed.items()]
        changed = Counter(f"{fact} {before or 'none'} → {now or 'none'}" for fact, before, now in changes)
        for line, number in changed.items():
            console.print(f"changed since the golden traces of {count(number, 'case')}: {line}")
        for name, facts in report.environment.items():
            environment = ", ".join(f"{key} {value}" for key, value in facts.items())
            kinds = Counter(kind for case in report.cases for kind in set(case.devices.get(name, ())))
            ran_on = ", ".join(f"{kind} in {number}" for kind, number in kinds.items()) or "no case"
            console.print(f"{name}: {environment}; {ran_on}", style="dim")
        for line in (*LEGEND, *_excused(report), *filter(None, [extent_line(report)])):
            console.fold(line, style="dim")
        declared = Counter(line for case in report.cases if case.layout for line in case.layout.declared)
        for line, number in declared.items():
            console.print(f"declared in {count(number, 'case')}: {line}", style="dim")

    def _line(self, cells: Sequence[Text], style: str = "") -> Table:
        """Return one line of the table: names of cases are folded where they do not fit, and no number is cut off."""
        table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, show_header=False)
        shown = [cell for cell, width in zip(cells, self._widths, strict=True) if width]
        for column, width in enumerate(width for width in self._widths if width):
            left, last = column in (0, 1, len(self._widths) - 1), column == len(shown) - 1
            least = None if last else width  # so that lines end without spaces
            table.add_column(justify="left" if left else "right", min_width=least, max_width=width, overflow="fold")
        table.add_row(*shown, style=style)
        return table

    def _print(self, line: Table) -> None:
        if self._error is None:
            try:
                self.console.print(line)
            except OSError as error:
                self._error = error


def _widths(names: Sequence[str], width: int) -> list[int]:
    """Return the widths of the columns; that of the tensors' names is 0 if there is no room for them."""
    fixed = [VERDICT, *(max(len(heading), 3) for heading in KINDS.values()), 3, 3, SECONDS]
    left = width - sum(fixed) - len(fixed) - 1
    longest = max(map(len, names), default=LONGEST)
    return [min(longest, left), *fixed, left - longest - 1 if left - longest > SHORTEST else 0]


def _excused(report: Report) -> Iterator[str]:
    """Yield the explanation of the mark ~, if any tensors match only by the witness."""
    checks = [(case, check) for case in report.cases for check in case.checks.values() if isinstance(check, Check)]
    excused = [(case, check) for case, check in checks if check.excused]
    if excused:
        case, most = max(excused, key=lambda pair: pair[1].excused_most or 0.0)
        yield (
            f"~ further apart, but no further than rounding alone grows there (the witness): "
            f"{count(sum(check.excused for _, check in excused), 'tensor')}, "
            f"at most {most.excused_most or 0.0:.1e} of the largest value ({case.case})"
        )


def table(cases: Sequence[CaseResult]) -> str:
    """Return the table of some cases, for a failing test that compares several."""
    file = io.StringIO()
    printed = Printed(file)
    printed.names = [case.case for case in cases]
    for case in cases:
        printed.add(case)
    return file.getvalue().strip("\n")


def text(case: CaseResult) -> str:
    """Return the text for a failing test: where the case differs, why, and what to add to a pair file to accept it."""
    file = io.StringIO()
    console = Console(file, PIPE_WIDTH)
    _explain(case, console)
    _suggest(case, console)
    return file.getvalue().strip("\n")


def _row(case: CaseResult, room: int) -> list[str]:
    """Return the cells of a case's row, with `room` characters for the name of its worst tensor."""
    bits = [_bits(case.checks.get(kind)) for kind in KINDS]
    seconds = "+".join(f"{value:.0f}" for value in case.seconds.values())
    marks = _layout(case.layout), _single(case)
    return [case.case, case.verdict, *bits, *marks, seconds, fitted(_worst_name(case), room)]


def _layout(check: LayoutCheck | None) -> str:
    """Return the mark for a layout check: "=" equal, "≈" different as declared, "!" different."""
    if check is None or check.verdict == "skipped":
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
    if check.worst_bits is not None:
        return str(round(check.worst_bits))
    return "!" if check.verdict == "diverged" else "~" if check.excused else "="


def _worst_name(case: CaseResult) -> str:
    """Return the name of the tensor that diverged first, or else of the one with the fewest bits."""
    if case.first_divergence:
        return case.first_divergence.name
    checks = [check for check in case.checks.values() if isinstance(check, Check) and check.worst_bits is not None]
    worst = min(checks, key=lambda check: check.worst_bits or 0.0, default=None)
    return (worst and worst.worst_name) or ""


def _explain(case: CaseResult, console: Console) -> None:
    if case.verdict != "match":
        console.print(f"\n{case.case}: {case.verdict}", style=COLOURS[case.verdict])
        if case.first_divergence:
            _explain_divergence(case.first_divergence, console)
        printed = [case.first_divergence.reason] if case.first_divergence else []
        printed += case.layout.differences if case.layout else []
        printed += [against.reason for against in case.against_single.values()]
        if case.reason and case.reason not in printed:
            console.print(f"  {case.reason}")  # not folded: that of an error may end with a command to be copied
        for (name, sides), causes in grouped(case.causes, lambda cause: (cause.id, sides_in_words(cause))).items():
            where = listed([cause.where for cause in causes], 1)
            console.fold(f"  cause: {name} at {where}{': ' if sides else ''}{sides}", style="bold")
            console.fold(f"    {causes[0].evidence}")
            if causes[0].source not in causes[0].evidence:
                console.print(f"    keras's is made at {causes[0].source}")
        _repairs(case, console)
        _explain_devices(case, console)
    for finding in words.findings(case):
        console.print()
        console.fold(f"{case.case}: {finding.id} at {finding.where}: {finding.message}")


def _explain_devices(case: CaseResult, console: Console) -> None:
    """Print the differences of layouts, and where a side differs from its own training on a single device."""
    first, differences = case.first_divergence, case.layout.differences if case.layout else []
    further = [line for line in differences if not (first and line == first.reason)]
    for line in further[:MOST_LINES]:
        console.fold(f"  {line}")
    if len(further) > MOST_LINES:
        console.print(f"  and {len(further) - MOST_LINES} more")
    for side, against in case.against_single.items():
        if against.verdict != "match":
            alone = f"{side}, compared with its own training on a single device"
            console.fold(f"  {alone}: {against.verdict}: {against.reason}")


def _explain_divergence(first: Divergence, console: Console) -> None:
    lines = [words.divergence(first), first.reason]
    if first.reason.startswith(ELSEWHERE):
        lines.reverse()
    lines.append(words.meaning(first.reason))
    sides = (f"  {name:10}{_side(side, first.index)}" for name, side in first.sides.items())
    for line in filter(None, (*lines, *sides)):
        console.fold(f"  {line}")


def _side(side: Side, index: list[int]) -> str:
    numbers = (side.smallest, side.largest, side.mean)
    low, high, mean = ("-" if number is None else f"{number:z.6g}" for number in numbers)
    at = "" if side.value is None else f", at {index} {side.value:z.17g}"
    return f"{side.dtype}{side.shape} min {low}, max {high}, mean {mean}{at}"


def show_pair(case: CaseResult, console: Console) -> None:
    """Print what only pairs have: remarks, suggestions, the mapping of weights; for a built-in case print nothing."""
    remarks = list(words.remarks(case))
    if remarks:
        console.print(f"\n{case.case}:")
    for remark in remarks:
        console.fold(f"  {remark}")
    _suggest(case, console)
    if case.mapping:
        console.print(f"\nweights of {case.case}:\n{weights.table(case.mapping)}")
    if case.mapping and case.mapping.entries:
        rules = weights.as_toml(case.mapping)
        console.print(f"\nthe same as [[weights]] rules, to copy into the pair file and edit:\n\n{rules}")


def _suggest(case: CaseResult, console: Console) -> None:
    """Print the sections that accept the differences with a known cause, to be added to the pair file."""
    for suggestion in case.suggestions:
        console.print()
        console.fold(f"  {suggestion.why}; add to the pair file (or let --accept add it):")
        console.print(f"\n{suggestion.toml}", soft_wrap=True, end="")


def _repairs(case: CaseResult, console: Console) -> None:
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
