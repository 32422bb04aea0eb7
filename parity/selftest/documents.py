"""The self-test's report as JSON, as a page, as JUnit's XML and as Markdown."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from parity.core.wording import agree, count
from parity.report import junit, markdown
from parity.report.html import page
from parity.report.output import Makers
from parity.selftest import report
from parity.selftest.outcome import Outcome

SCHEMA = 1
MARKS = {"match": "✓", "diverged": "✗", "error": "!"}
VERDICTS = {0: "match", 1: "diverged", 3: "error"}  # by exit status


class Selftest(NamedTuple):
    """What came of all runs.

    `objections` holds by other check whether it objects to each outcome. `error` is what ended the self-test early.
    """

    outcomes: Sequence[Outcome]
    objections: dict[str, list[bool]]
    command: str
    error: str = ""

    @property
    def verdict(self) -> str:
        """Return the verdict that stands for the exit status."""
        return "error" if self.error else VERDICTS[report.status(self.outcomes)]


def makers(selftest: Selftest) -> Makers:
    """Return what makes each format's text."""
    return {
        "html": lambda: _page(selftest),
        "junit": lambda: junit.document("parity.selftest", _tests(selftest)),
        "markdown": lambda: _markdown(selftest),
    }


def document(selftest: Selftest) -> dict[str, Any]:
    """Return the report as JSON values: a row for each fault, and one for each clean run."""
    rows = [_row(number, outcome, selftest.objections) for number, outcome in enumerate(selftest.outcomes)]
    return {
        "schema": SCHEMA,
        "error": selftest.error,
        "faults": sorted((row for row in rows if "caught" in row), key=lambda row: str(row["fault"])),
        "clean": [row for row in rows if "caught" not in row],
    }


def headline(selftest: Selftest) -> str:
    """Return the outcome in one sentence."""
    faults = [outcome for outcome in selftest.outcomes if outcome.fault]
    caught, alarms = sum(outcome.caught for outcome in faults), len(report.false_alarms(selftest.outcomes))
    clean = len(selftest.outcomes) - len(faults)
    planted, alarmed = count(len(faults), "planted fault"), count(alarms, "false alarm")
    return f"{caught} of {planted} {agree(caught, 'was')} caught, with {alarmed} in {count(clean, 'clean run')}."


def _row(number: int, outcome: Outcome, objections: dict[str, list[bool]]) -> dict[str, Any]:
    """Return the facts about one run."""
    fault, result = outcome.fault, outcome.result
    others = {name: said[number] for name, said in objections.items()}
    facts = {"case": outcome.case.name, "verdict": result.verdict, "reason": result.reason, "other_checks": others}
    if fault is None:
        return {**facts, "alarm": outcome.caught}
    marks = {"caught": outcome.caught, "placed": outcome.placed, "named": outcome.named}
    causes = {"expected": fault.cause, "causes": sorted(outcome.causes)}
    return {"fault": report.label(outcome), **facts, **marks, **causes}


def _page(selftest: Selftest) -> str:
    facts = document(selftest)
    banner = page.Banner(selftest.verdict, MARKS[selftest.verdict], headline(selftest), selftest.command)
    sections = [
        page.Section("overview", "Overview", page.part("selftest_overview", marks=MARKS, **facts)),
        page.Section("faults", "Planted faults", page.part("selftest_faults", marks=MARKS, faults=facts["faults"])),
        page.Section("clean", "Clean runs", page.part("selftest_clean", marks=MARKS, clean=facts["clean"])),
    ]
    return page.render("Parity self-test", banner, sections, facts)


def _tests(selftest: Selftest) -> list[junit.Test]:
    tests = [_test(outcome) for outcome in selftest.outcomes]
    return [*tests, junit.Test("selftest", "the whole run", "error", selftest.error)] if selftest.error else tests


def _test(outcome: Outcome) -> junit.Test:
    """Return a test: a fault passes if it is caught and placed, a clean run if it raises no alarm."""
    name, result = report.label(outcome), outcome.result
    suite = "faults" if outcome.fault else "clean"
    if result.verdict == "error":
        return junit.Test(suite, name, "error", result.reason)
    if outcome.fault is None:
        alarm = f"false alarm: {result.verdict}: {result.reason}"
        return junit.Test(suite, name, "failure", alarm) if outcome.caught else junit.Test(suite, name, "passed")
    if outcome.caught and outcome.placed:
        return junit.Test(suite, name, "passed")
    return junit.Test(suite, name, "failure", f"{'not placed' if outcome.caught else 'not caught'}: {result.reason}")


def _markdown(selftest: Selftest) -> str:
    faults = document(selftest)["faults"]
    missed = [row for row in faults if not (row["caught"] and row["placed"] and row["named"])]
    words = ("caught", "placed", "named")
    rows = [[markdown.escaped(row["fault"]), *("yes" if row[word] else "**no**" for word in words)] for row in missed]
    paragraphs = markdown.table(("fault", *words), rows) if missed else []
    return markdown.document(
        headline(selftest), paragraphs, [markdown.escaped(selftest.error)] if selftest.error else []
    )
