"""Output for CI systems and editors: JUnit's XML, in which each case is a test, and SARIF 2.1.0, remarks on lines.

SARIF has what is known of a file and line, as code scanning shows it. Markdown is the summary of a GitHub step.
"""

import html
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple
from urllib.parse import quote
from xml.etree import ElementTree

from parity import __version__
from parity.report import terminal, words
from parity.report.words import MARKS, extent_line, headline, main_case, next_step, sides_in_words
from parity.results import CaseResult, Divergence, Report

State = Literal["passed", "failure", "error", "skipped"]
STATES: dict[str, State] = {"diverged": "failure", "inconclusive": "failure", "error": "error", "skipped": "skipped"}
UNWRITABLE = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # what XML 1.0 cannot hold
SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
Level = Literal["error", "warning", "note"]


class Test(NamedTuple):
    """A test: what it is called, how it ended, the reason in one line, the details, and how long it took."""

    suite: str
    name: str
    state: State
    message: str = ""
    text: str = ""
    seconds: float = 0.0


def tests_of_cases(report: Report, strict: bool) -> list[Test]:
    """Return a test for each case; with `strict`, what --strict refuses fails. A report's own error is a test too."""
    tests = []
    for case in report.cases:
        suite, _, name = case.case.rpartition("/")
        state = STATES.get(case.verdict, "passed")
        first = case.first_divergence
        where = words.divergence(first) if first and first.reason == case.reason else ""
        message = ": ".join(filter(None, (case.verdict, where, case.reason)))
        if state == "passed" and strict and (case.verdict == "subprecision" or case.findings):
            state = "failure"
            message = message if case.verdict == "subprecision" else case.findings[0].message
        text = terminal.text(case) if state in ("failure", "error") else ""
        tests.append(Test(suite, name, state, message, text, sum(case.seconds.values())))
    return [*tests, Test("parity", "the whole run", "error", report.error)] if report.error else tests


def junit(program: str, tests: Sequence[Test]) -> str:
    root = ElementTree.Element("testsuites", name=program)
    suite = ElementTree.SubElement(root, "testsuite", name=program, tests=str(len(tests)))
    for name, state in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(name, str(sum(test.state == state for test in tests)))
    suite.set("time", f"{sum(test.seconds for test in tests):.3f}")
    for test in tests:
        facts = {"classname": _writable(test.suite), "name": _writable(test.name), "time": f"{test.seconds:.3f}"}
        element = ElementTree.SubElement(suite, "testcase", facts)
        if test.state != "passed":
            detail = ElementTree.SubElement(element, test.state, message=_writable(test.message))
            detail.text = _writable(test.text) or None
    ElementTree.indent(root)
    text: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return text.decode() + "\n"


def _writable(text: str) -> str:
    return UNWRITABLE.sub("\N{REPLACEMENT CHARACTER}", text)


Remark = dict[str, Any] | None  # a result of SARIF, if it has a file and a line


def remarks_of_causes(report: Report) -> Iterator[Remark]:
    """Yield the named causes whose line in the port is known."""
    for case in report.cases:
        level: Level = "error" if case.verdict == "diverged" else "warning"
        for cause in filter(lambda each: each.source, case.causes):
            said = ": ".join(filter(None, (case.case, cause.where, sides_in_words(cause))))
            yield remark(cause.id, level, f"{said}. {cause.evidence}", cause.source)


def sarif(remarks: Iterable[Remark]) -> str:
    """Return the JSON text; remarks without a file and a line are left out."""
    results = list(filter(None, remarks))
    rules = [{"id": rule} for rule in sorted({result["ruleId"] for result in results})]
    driver = {"name": "framework-parity", "version": __version__, "rules": rules}
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def remark(rule: str, level: Level, message: str, source: str) -> Remark:
    """Return what is said of a line of a file; `source` is "file:line", `rule` the id of the cause or finding."""
    file, _, line = source.rpartition(":")
    if not file or not line.isdecimal() or not int(line):
        return None
    path = Path(file)
    if path.is_absolute() and path.is_relative_to(Path.cwd()):
        path = path.relative_to(Path.cwd())
    uri = path.as_uri() if path.is_absolute() else quote(path.as_posix())
    location = {"artifactLocation": {"uri": uri}, "region": {"startLine": int(line)}}
    return {"ruleId": rule, "level": level, "message": {"text": message}, "locations": [{"physicalLocation": location}]}


MOST = 50  # rows of a table; a summary may have a megabyte
SPECIAL = re.compile(r"([\\`*_{}\[\]#|~])")


def comparison(report: Report) -> str:
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
    where = f", {words.when(first)}: {_tensor(first)}" if first else ""
    yield f"**{escaped(case.case)}**: {case.verdict}{where}"
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
