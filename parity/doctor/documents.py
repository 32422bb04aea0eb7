"""The doctor's report as a page, as JUnit's XML, as SARIF and as Markdown."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from parity.core.wording import count
from parity.doctor import report
from parity.doctor.evidence import Evidence
from parity.doctor.finding import SEVERITIES, Finding
from parity.report import ci, markdown
from parity.report.html import page
from parity.report.output import Makers

MARKS = {"error": "✗", "warning": "!", "note": "i", "match": "✓"}


class Examination(NamedTuple):
    """What came of all programs; `errors` are the messages of those that could not be run, `command` the command."""

    findings: list[Finding]
    evidence: list[Evidence]
    errors: list[str]
    command: str


def makers(examination: Examination) -> Makers:
    """Return what makes each format's text."""
    return {
        "html": lambda: _page(examination),
        "junit": lambda: ci.junit("parity.doctor", _tests(examination)),
        "sarif": lambda: ci.sarif(_remarks(examination.findings)),
        "markdown": lambda: _markdown(examination),
    }


def headline(examination: Examination) -> str:
    """Return the outcome in one sentence."""
    counts = Counter(finding.severity for finding in examination.findings)
    if counts["error"] or counts["warning"]:
        parts = [count(counts[each], each) for each in SEVERITIES if counts[each]]
        return f"The doctor found {' and '.join(parts) if len(parts) < 3 else ', '.join(parts)}."
    if examination.errors:
        return "The program could not be examined."
    return "The doctor found nothing to mend."


def _page(examination: Examination) -> str:
    state = _state(examination)
    banner = page.Banner(state, MARKS[state], headline(examination), examination.command)
    findings = sorted(examination.findings, key=lambda finding: SEVERITIES.index(finding.severity))
    document = report.document(examination.findings, examination.evidence)
    sections = [
        page.Section("findings", "Findings", page.part("findings", findings=findings, marks=MARKS, run=examination)),
        page.Section("times", "Time of a step", page.part("times", times=document["times"], parts=report.PARTS)),
        page.Section("environment", "Environment", page.part("devices", programs=document["environment"])),
    ]
    return page.render("Doctor's report", banner, sections, document)


def _state(examination: Examination) -> str:
    severities = {finding.severity for finding in examination.findings}
    if "error" in severities or examination.errors:
        return "error"
    return "warning" if "warning" in severities else "match"


def _tests(examination: Examination) -> list[ci.Test]:
    """Return a test for each program, which fails by what is not a note."""
    programs = dict.fromkeys((each.side, each.case) for each in examination.evidence)
    tests = [_test(side, case, examination.findings) for side, case in programs]
    return [*tests, *(ci.Test("doctor", "a program", "error", error) for error in examination.errors)]


def _test(side: str, case: str, findings: Sequence[Finding]) -> ci.Test:
    name = " ".join(filter(None, (side, case)))
    failed = [each for each in findings if (each.side, each.case) == (side, case) and each.severity != "note"]
    if not failed:
        return ci.Test("doctor", name, "passed")
    return ci.Test("doctor", name, "failure", failed[0].message, "\n\n".join(map(_said, failed)))


def _said(finding: Finding) -> str:
    place = ", ".join(filter(None, (finding.where, finding.source)))
    fix = f"\nfix: {finding.fix}" if finding.fix else ""
    return f"{finding.severity}: {finding.id} at {place}\n{finding.message}{fix}"


def _remarks(findings: Sequence[Finding]) -> list[ci.Remark]:
    return [
        ci.Remark(each.id, each.severity, f"{each.message}{f' Fix: {each.fix}' if each.fix else ''}", each.source)
        for each in findings
    ]


def _markdown(examination: Examination) -> str:
    headings = ("severity", "finding", "line", "what was seen", "fix")
    rows = [_cells(finding) for finding in examination.findings]
    errors = map(markdown.escaped, examination.errors)
    return markdown.document(headline(examination), markdown.table(headings, rows) if rows else [], errors)


def _cells(finding: Finding) -> list[str]:
    texts = (finding.id, finding.source, finding.message, finding.fix)
    return [f"{MARKS[finding.severity]} {finding.severity}", *map(markdown.escaped, texts)]
