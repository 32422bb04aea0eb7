"""The doctor's report: which devices the program ran on, each finding with its line and fix, and where time goes.

It is printed, or written as JSON, as a page, as JUnit's XML, as SARIF and as Markdown.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple, TextIO

import msgspec
from rich.text import Text

from parity.core.clock import PARTS, Time
from parity.core.groups import by_key
from parity.core.wording import count
from parity.doctor.evidence import Evidence
from parity.doctor.finding import SEVERITIES, Finding
from parity.report import ci, html
from parity.report.output import Console, Makers

SCHEMA = 1
MARKS = {"error": "✗", "warning": "!", "note": "i", "match": "✓"}
COLOURS = {"error": "red", "warning": "yellow", "note": "cyan"}
PIPE_WIDTH = 100  # columns if the output is not a terminal
UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))


class Examination(NamedTuple):
    """What came of all programs; `errors` are the messages of those that could not be run, `command` the command."""

    findings: list[Finding]
    evidence: list[Evidence]
    errors: list[str]
    command: str


def show(examination: Examination, file: TextIO) -> None:
    """Print what ran, the findings, the times and the number of findings."""
    console, findings = Console(file, PIPE_WIDTH), examination.findings
    for line in dict.fromkeys(map(_headline, examination.evidence)):
        console.print(line, style="dim")
    for finding in findings:
        at, names = _at(finding), _program(finding)
        head = Text.assemble((f"{finding.severity}: {finding.id}", f"bold {COLOURS[finding.severity]}"))
        head.append(f"{f' ({names})' if names else ''}{' at ' if at else ''}{at}")
        console.print()
        console.print(head)
        for line in finding.message.splitlines():
            console.fold(f"  {line}")
        if finding.fix:  # not folded, so that the code can be copied
            console.print(Text(f"  fix: {finding.fix}", style="bold"), soft_wrap=True)
    if findings:
        console.print()
    ranks = [
        (f"{_program(each)}{f' rank {each.rank}' if each.ranks > 1 else ''}", each) for each in examination.evidence
    ]
    for rank, evidence in ranks:
        for time in evidence.times:
            console.fold(f"{rank}: {_timed(time)}")
    for rank, evidence in ranks:
        if evidence.profile:
            console.print(f"{rank}: profile: {evidence.profile}")
    total = f"{count(len(findings), 'finding')}: {', '.join(_counts(findings))}" if findings else "no findings"
    console.print(total, style="bold")


def document(examination: Examination) -> dict[str, Any]:
    ranks = [({"side": each.side, "case": each.case, "rank": each.rank}, each) for each in examination.evidence]
    return {
        "schema": SCHEMA,
        "findings": msgspec.to_builtins(examination.findings),
        "times": [rank | msgspec.to_builtins(time) for rank, each in ranks for time in each.times],
        "environment": [rank | {"devices": _devices(each), "profile": each.profile} for rank, each in ranks],
    }


def _headline(evidence: Evidence) -> str:
    kinds = by_key((kind, device) for device, kind in _devices(evidence).items())
    devices = "; ".join(f"{', '.join(names)}{f': {kind}' if kind else ''}" for kind, names in kinds.items())
    ranks = f", {evidence.ranks} ranks" if evidence.ranks > 1 else ""
    steps = count(len(evidence.steps), "step")
    return f"{_program(evidence)}{ranks}, {steps} observed on {devices or 'the host'}"


def _devices(evidence: Evidence) -> dict[str, str]:
    physical = evidence.physical + [""] * len(evidence.devices)
    return dict(zip(evidence.devices, physical, strict=False))


def _program(of: Evidence | Finding) -> str:
    return " ".join(filter(None, (of.side, of.case)))


def _at(finding: Finding) -> str:
    return ", ".join(filter(None, (finding.where, finding.source)))


def _timed(time: Time) -> str:
    scale, unit = next((candidate for candidate in UNITS if time.step >= candidate[0]), UNITS[-1])
    parts = [f"{part} {value / scale:.3g}" for part in PARTS if (value := getattr(time, part)) is not None]
    split = f": {', '.join(parts)}" if parts else ""
    return f"step {time.step / scale:.3g} {unit} on {time.device}, median of {time.steps}{split}"


def _counts(findings: Sequence[Finding]) -> list[str]:
    counts = Counter(finding.severity for finding in findings)
    return [count(counts[severity], severity) for severity in SEVERITIES if counts[severity]]


def makers(examination: Examination) -> Makers:
    return {
        "html": lambda: _page(examination),
        "junit": lambda: ci.junit("parity.doctor", _tests(examination)),
        "sarif": lambda: ci.sarif(
            ci.remark(each.id, each.severity, _with_fix(each, " Fix: "), each.source) for each in examination.findings
        ),
        "markdown": lambda: _markdown(examination),
    }


def headline(examination: Examination) -> str:
    if {finding.severity for finding in examination.findings} & {"error", "warning"}:
        parts = _counts(examination.findings)
        return f"The doctor found {' and '.join(parts) if len(parts) < 3 else ', '.join(parts)}."
    return "The program could not be examined." if examination.errors else "The doctor found nothing to mend."


def _page(examination: Examination) -> str:
    severities = {finding.severity for finding in examination.findings}
    is_error = "error" in severities or examination.errors
    state = "error" if is_error else "warning" if "warning" in severities else "match"
    banner = html.Banner(state, MARKS[state], headline(examination), examination.command)
    findings = sorted(examination.findings, key=lambda finding: SEVERITIES.index(finding.severity))
    encoded = document(examination)
    sections = [
        ("findings", "Findings", html.part("findings", findings=findings, marks=MARKS, run=examination)),
        ("times", "Time of a step", html.part("times", times=encoded["times"], parts=PARTS)),
        ("environment", "Environment", html.part("devices", programs=encoded["environment"])),
    ]
    return html.render("Doctor's report", banner, sections, encoded)


def _tests(examination: Examination) -> list[ci.Test]:
    """Return a test for each program, which fails by what is not a note."""
    tests = {program: ci.Test("doctor", program, "passed") for program in map(_program, examination.evidence)}
    failed = [finding for finding in examination.findings if finding.severity != "note"]
    for program in tests:
        if own := [finding for finding in failed if _program(finding) == program]:
            heads = [f"{each.severity}: {each.id} at {_at(each)}\n" for each in own]
            texts = [head + _with_fix(each, "\nfix: ") for head, each in zip(heads, own, strict=True)]
            tests[program] = ci.Test("doctor", program, "failure", own[0].message, "\n\n".join(texts))
    return [*tests.values(), *(ci.Test("doctor", "a program", "error", error) for error in examination.errors)]


def _with_fix(finding: Finding, before: str) -> str:
    return f"{finding.message}{before}{finding.fix}" if finding.fix else finding.message


def _markdown(examination: Examination) -> str:
    headings = ("severity", "finding", "line", "what was seen", "fix")
    rows = [
        [f"{MARKS[each.severity]} {each.severity}", *map(ci.escaped, (each.id, each.source, each.message, each.fix))]
        for each in examination.findings
    ]
    errors = map(ci.escaped, examination.errors)
    return ci.document(headline(examination), ci.table(headings, rows) if rows else [], errors)
