"""The self-test's report: what became of every planted fault, as a table, JSON, a page, JUnit's XML and Markdown."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TextIO

import msgspec
from rich.table import Table
from rich.text import Text

from parity.core.wording import agree, count
from parity.report import ci, html, words
from parity.report.output import Console, Makers
from parity.selftest.outcome import Outcome

NAMED = 0.9  # fraction of the faults that must be named
PIPE_WIDTH = 140  # columns if the output is no terminal
SCHEMA = 1
VERDICTS = {0: "match", 1: "diverged", 3: "error"}  # by exit status


@dataclass
class Selftest:
    """What came of all runs. `command`: the command line; `error`: what ended the self-test early, or ""."""

    outcomes: Sequence[Outcome]
    command: str = ""
    error: str = ""

    @property
    def faults(self) -> list[Outcome]:
        """Return the outcomes of the planted faults, by their names."""
        return sorted((outcome for outcome in self.outcomes if outcome.fault), key=label)

    @property
    def clean(self) -> list[Outcome]:
        return [outcome for outcome in self.outcomes if not outcome.fault]

    @property
    def false_alarms(self) -> list[Outcome]:
        return [outcome for outcome in self.clean if outcome.caught]

    @property
    def status(self) -> int:
        """Return the exit status: 3 if a run failed.

        0: all faults are caught and placed, nine of ten are named, and no clean run raises an alarm. 1: anything else.
        """
        if any(outcome.result.verdict == "error" for outcome in self.outcomes):
            return 3
        all_caught = all(outcome.caught and outcome.placed for outcome in self.faults)
        enough_named = sum(outcome.named for outcome in self.faults) >= NAMED * len(self.faults)
        return 0 if all_caught and enough_named and not self.false_alarms else 1

    @property
    def verdict(self) -> str:
        """Return the verdict that stands for the exit status."""
        return "error" if self.error else VERDICTS[self.status]


def show(selftest: Selftest, file: TextIO) -> None:
    """Print a row for each fault, what went wrong, and the sums."""
    console = Console(file, PIPE_WIDTH)
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    for heading in ("fault", "caught", "placed", "named", *_other_checks(selftest)):
        table.add_column(heading, no_wrap=heading != "fault", overflow="fold")
    for outcome in selftest.faults:
        marks = (outcome.caught, outcome.placed, outcome.named, *outcome.objections.values())
        table.add_row(label(outcome), *(Text("yes", "green") if good else Text("no", "red") for good in marks))
    console.print(table)
    for outcome in selftest.faults:
        _complain(outcome, console)
    for outcome in selftest.outcomes:
        if outcome.result.verdict == "error":
            console.print(f"failed: {label(outcome)}: {outcome.result.reason}", style="red")
    for outcome in selftest.false_alarms:
        config = msgspec.json.encode(outcome.case).decode()
        console.print(f"false alarm: {outcome.result.verdict}: {outcome.result.reason}\n  {config}", style="red")
    faults, clean = selftest.faults, selftest.clean
    sums = {name: sum(getattr(outcome, name) for outcome in faults) for name in ("caught", "placed", "named")}
    console.print(f"{count(len(faults), 'fault')}: {', '.join(f'{number} {name}' for name, number in sums.items())}")
    console.print(f"{count(len(clean), 'clean run')}: {count(len(selftest.false_alarms), 'false alarm')}")
    for name in _other_checks(selftest):
        caught, alarms = (sum(outcome.objections[name] for outcome in outcomes) for outcomes in (faults, clean))
        console.print(f"{name} on the outputs: {caught} caught, {count(alarms, 'false alarm')}", style="dim")


def _other_checks(selftest: Selftest) -> list[str]:
    return list(selftest.outcomes[0].objections) if selftest.outcomes else []


def label(outcome: Outcome) -> str:
    """Return the name of an outcome's fault, or of its case."""
    return f"{outcome.fault.side}:{outcome.fault.name}" if outcome.fault else outcome.case.name


def _complain(outcome: Outcome, console: Console) -> None:
    """Print what was expected and what was found, where the two differ."""
    fault, result = outcome.fault, outcome.result
    assert fault
    if result.verdict == "error":
        return
    if not outcome.caught:
        console.print(f"{label(outcome)}: not caught on {outcome.case.name}: {result.verdict} {result.reason}")
        return
    if not outcome.placed:
        planted = f"step {fault.step}, {fault.kind}, {fault.place}"
        places = "; ".join(f"step {step}, {kind}, {name}" for step, kind, name in outcome.places)
        console.print(f"{label(outcome)}: planted at {planted}; found at {places}")
    if not outcome.named:
        expected, named = fault.cause or "none in the catalogue", ", ".join(sorted(outcome.causes)) or "none"
        console.print(f"{label(outcome)}: expected the cause {expected}; named: {named}")


def makers(selftest: Selftest) -> Makers:
    def tests() -> Iterator[ci.Test]:
        yield from map(_test, selftest.outcomes)
        if selftest.error:
            yield ci.Test("selftest", "the whole run", "error", selftest.error)

    return {
        "html": lambda: _page(selftest),
        "junit": lambda: ci.junit("parity.selftest", list(tests())),
        "markdown": lambda: _markdown(selftest),
    }


def document(selftest: Selftest) -> dict[str, Any]:
    """Return the report as JSON values: a row for each fault, and one for each clean run."""
    return {
        "schema": SCHEMA,
        "error": selftest.error,
        "faults": list(map(_row, selftest.faults)),
        "clean": list(map(_row, selftest.clean)),
    }


def headline(selftest: Selftest) -> str:
    caught = sum(outcome.caught for outcome in selftest.faults)
    planted = count(len(selftest.faults), "planted fault")
    alarmed, clean = count(len(selftest.false_alarms), "false alarm"), count(len(selftest.clean), "clean run")
    return f"{caught} of {planted} {agree(caught, 'was')} caught, with {alarmed} in {clean}."


def _row(outcome: Outcome) -> dict[str, Any]:
    fault, result, others = outcome.fault, outcome.result, outcome.objections
    facts = {"case": outcome.case.name, "verdict": result.verdict, "reason": result.reason, "other_checks": others}
    if fault is None:
        return {**facts, "alarm": outcome.caught}
    marks = {"caught": outcome.caught, "placed": outcome.placed, "named": outcome.named}
    causes = {"expected": fault.cause, "causes": sorted(outcome.causes)}
    return {"fault": label(outcome), **facts, **marks, **causes}


def _page(selftest: Selftest) -> str:
    facts = document(selftest)
    banner = html.Banner(selftest.verdict, words.MARKS[selftest.verdict], headline(selftest), selftest.command)
    sections = [
        ("overview", "Overview", html.part("selftest_overview", **facts)),
        ("faults", "Planted faults", html.part("selftest_faults", faults=facts["faults"])),
        ("clean", "Clean runs", html.part("selftest_clean", clean=facts["clean"])),
    ]
    return html.render("Parity self-test", banner, sections, facts)


def _test(outcome: Outcome) -> ci.Test:
    """Return a test: a fault passes if it is caught and placed, a clean run if it raises no alarm."""
    name, result = label(outcome), outcome.result
    suite = "faults" if outcome.fault else "clean"
    if result.verdict == "error":
        return ci.Test(suite, name, "error", result.reason)
    if outcome.fault is None:
        alarm = f"false alarm: {result.verdict}: {result.reason}"
        return ci.Test(suite, name, "failure", alarm) if outcome.caught else ci.Test(suite, name, "passed")
    if outcome.caught and outcome.placed:
        return ci.Test(suite, name, "passed")
    return ci.Test(suite, name, "failure", f"{'not placed' if outcome.caught else 'not caught'}: {result.reason}")


def _markdown(selftest: Selftest) -> str:
    faults = document(selftest)["faults"]
    missed = [row for row in faults if not (row["caught"] and row["placed"] and row["named"])]
    marks = ("caught", "placed", "named")
    rows = [[ci.escaped(row["fault"]), *("yes" if row[mark] else "**no**" for mark in marks)] for row in missed]
    paragraphs = ci.table(("fault", *marks), rows) if missed else []
    return ci.document(headline(selftest), paragraphs, [ci.escaped(selftest.error)] if selftest.error else [])
