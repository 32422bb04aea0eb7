"""Output as SARIF 2.1.0: what is known of a file and line, as code scanning and editors show it."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple
from urllib.parse import quote

from parity import __version__
from parity.report.sides import in_words
from parity.results import CaseResult, Report

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
Level = Literal["error", "warning", "note"]


class Remark(NamedTuple):
    """Something that is said of a line of a file; `source` is "file:line", `rule` the id of the cause or finding."""

    rule: str
    level: Level
    message: str
    source: str


def of_causes(report: Report) -> list[Remark]:
    """Return the named causes whose line in the port is known."""
    return [remark for case in report.cases for remark in _of_case(case)]


def document(remarks: Sequence[Remark]) -> str:
    """Return the JSON text; remarks without a file and a line are left out."""
    results = [_result(remark, *place) for remark in remarks if (place := _place(remark.source))]
    rules = [{"id": rule} for rule in sorted({result["ruleId"] for result in results})]
    driver = {"name": "framework-parity", "version": __version__, "rules": rules}
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def _of_case(case: CaseResult) -> Iterator[Remark]:
    level: Level = "error" if case.verdict == "diverged" else "warning"
    for cause in case.causes:
        if cause.source:
            sides = in_words(cause)
            said = f"{case.case}: {cause.where}: {sides}" if sides else f"{case.case}: {cause.where}"
            yield Remark(cause.id, level, f"{said}. {cause.evidence}", cause.source)


def _place(source: str) -> tuple[str, int] | None:
    """Return file and line of "file:line"; None if it has no line."""
    file, _, line = source.rpartition(":")
    return (file, int(line)) if file and line.isdecimal() and int(line) > 0 else None


def _result(remark: Remark, file: str, line: int) -> dict[str, Any]:
    location = {"artifactLocation": {"uri": _uri(file)}, "region": {"startLine": line}}
    return {
        "ruleId": remark.rule,
        "level": remark.level,
        "message": {"text": remark.message},
        "locations": [{"physicalLocation": location}],
    }


def _uri(file: str) -> str:
    """Return a path as a URI: relative to the working directory if it is below it."""
    path = Path(file)
    if path.is_absolute() and path.is_relative_to(Path.cwd()):
        path = path.relative_to(Path.cwd())
    return path.as_uri() if path.is_absolute() else quote(path.as_posix())
