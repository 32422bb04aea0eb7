"""Print the self-test's table: what became of every planted fault, here and by other checks."""

from collections.abc import Sequence
from typing import TextIO

import msgspec
from rich.table import Table
from rich.text import Text

from parity.core import wording
from parity.report.console import Console
from parity.selftest.outcome import Outcome

NAMED = 0.9  # fraction of the faults that must be named
PIPE_WIDTH = 140  # columns if the output is no terminal


def status(outcomes: Sequence[Outcome]) -> int:
    """Return the exit status.

    0: all faults are caught and placed, nine of ten are named, and no clean run raises an alarm. 3: a run failed. 1:
    anything else.
    """
    if any(outcome.result.verdict == "error" for outcome in outcomes):
        return 3
    faults = [outcome for outcome in outcomes if outcome.fault]
    all_caught = all(outcome.caught and outcome.placed for outcome in faults)
    enough_named = sum(outcome.named for outcome in faults) >= NAMED * len(faults)
    return 0 if all_caught and enough_named and not false_alarms(outcomes) else 1


def show(outcomes: Sequence[Outcome], objections: dict[str, list[bool]], file: TextIO) -> None:
    """Print a row for each fault, what went wrong, and the sums.

    `said` holds, by check, whether it objects to each outcome.
    """
    console = Console(file, PIPE_WIDTH)
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    for heading in ("fault", "caught", "placed", "named", *objections):
        table.add_column(heading, no_wrap=heading != "fault", overflow="fold")
    faults = sorted(
        (number for number, outcome in enumerate(outcomes) if outcome.fault), key=lambda n: label(outcomes[n])
    )
    for number in faults:
        outcome = outcomes[number]
        marks = (outcome.caught, outcome.placed, outcome.named, *(check[number] for check in objections.values()))
        table.add_row(label(outcome), *map(_mark, marks))
    console.print(table)
    for number in faults:
        _complain(outcomes[number], console)
    for outcome in outcomes:
        if outcome.result.verdict == "error":
            console.print(f"failed: {label(outcome)}: {outcome.result.reason}", style="red")
    for outcome in false_alarms(outcomes):
        config = msgspec.json.encode(outcome.case).decode()
        console.print(f"false alarm: {outcome.result.verdict}: {outcome.result.reason}\n  {config}", style="red")
    _sums(outcomes, objections, faults, console)


def _sums(
    outcomes: Sequence[Outcome], objections_by_check: dict[str, list[bool]], faults: list[int], console: Console
) -> None:
    """Print how many faults were caught, placed and named, and how many clean runs raised an alarm.

    The same is printed of the other checks, which only catch.
    """
    clean = [number for number, outcome in enumerate(outcomes) if not outcome.fault]
    counts = {name: sum(getattr(outcomes[n], name) for n in faults) for name in ("caught", "placed", "named")}
    summary = ", ".join(f"{count} {name}" for name, count in counts.items())
    console.print(f"{wording.count(len(faults), 'fault')}: {summary}")
    console.print(
        f"{wording.count(len(clean), 'clean run')}: {wording.count(len(false_alarms(outcomes)), 'false alarm')}"
    )
    for name, objections in objections_by_check.items():
        caught, alarms = (sum(objections[n] for n in numbers) for numbers in (faults, clean))
        console.print(f"{name} on the outputs: {caught} caught, {wording.count(alarms, 'false alarm')}", style="dim")


def false_alarms(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Return the clean runs that are no match."""
    return [outcome for outcome in outcomes if not outcome.fault and outcome.caught]


def label(outcome: Outcome) -> str:
    """Return the name of an outcome's fault, or of its case."""
    return f"{outcome.fault.side}:{outcome.fault.name}" if outcome.fault else outcome.case.name


def _mark(good: bool) -> Text:
    return Text("yes", style="green") if good else Text("no", style="red")


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
        places = "; ".join(f"step {step}, {kind}, {name}" for step, kind, name in outcome.places)
        console.print(f"{label(outcome)}: planted at step {fault.step}, {fault.kind}, {fault.place}; found at {places}")
    if not outcome.named:
        expected, named = fault.cause or "none in the catalogue", ", ".join(sorted(outcome.causes)) or "none"
        console.print(f"{label(outcome)}: expected the cause {expected}; named: {named}")
