"""Output as JUnit's XML: each case is a test, as CI systems show them."""

import io
import re
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple
from xml.etree import ElementTree

from parity.report import terminal, words
from parity.results import CaseResult, Report

State = Literal["passed", "failure", "error", "skipped"]
STATES: dict[str, State] = {"diverged": "failure", "inconclusive": "failure", "error": "error", "skipped": "skipped"}
UNWRITABLE = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # what XML 1.0 cannot hold


class Test(NamedTuple):
    """A test: what it is called, how it ended, the reason in one line, the details, and how long it took."""

    suite: str
    name: str
    state: State
    message: str = ""
    text: str = ""
    seconds: float = 0.0


def of_cases(report: Report, strict: bool) -> list[Test]:
    """Return a test for each case; with `strict`, what --strict refuses fails. A report's own error is a test too."""
    tests = [_of_case(case, strict) for case in report.cases]
    return [*tests, Test("parity", "the whole run", "error", report.error)] if report.error else tests


def document(program: str, tests: Sequence[Test]) -> str:
    """Return the XML text."""
    root = ElementTree.Element("testsuites", name=program)
    suite = ElementTree.SubElement(root, "testsuite", {"name": program, **_counts(tests)})
    for test in tests:
        _add(suite, test)
    ElementTree.indent(root)
    file = io.BytesIO()
    ElementTree.ElementTree(root).write(file, encoding="utf-8", xml_declaration=True)
    return file.getvalue().decode() + "\n"


def _of_case(case: CaseResult, strict: bool) -> Test:
    suite, _, name = case.case.rpartition("/")
    state = STATES.get(case.verdict, "passed")
    first = case.first_divergence
    place = words.divergence(first) if first and first.reason == case.reason else ""
    message = ": ".join(filter(None, (case.verdict, place, case.reason)))
    if state == "passed" and strict and (case.verdict == "subprecision" or case.findings):
        state = "failure"
        message = message if case.verdict == "subprecision" else case.findings[0].message
    text = terminal.text(case) if state in ("failure", "error") else ""
    return Test(suite, name, state, message if state != "passed" else "", text, sum(case.seconds.values()))


def _counts(tests: Iterable[Test]) -> dict[str, str]:
    states = [test.state for test in tests]
    return {
        "tests": str(len(states)),
        "failures": str(states.count("failure")),
        "errors": str(states.count("error")),
        "skipped": str(states.count("skipped")),
        "time": f"{sum(test.seconds for test in tests):.3f}",
    }


def _add(suite: ElementTree.Element, test: Test) -> None:
    facts = {"classname": _writable(test.suite), "name": _writable(test.name), "time": f"{test.seconds:.3f}"}
    element = ElementTree.SubElement(suite, "testcase", facts)
    if test.state != "passed":
        detail = ElementTree.SubElement(element, test.state, message=_writable(test.message))
        detail.text = _writable(test.text) or None


def _writable(text: str) -> str:
    """Return a text without the characters that XML cannot hold."""
    return UNWRITABLE.sub("\N{REPLACEMENT CHARACTER}", text)
