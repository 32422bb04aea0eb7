"""The doctor's report: which devices the program ran on, each finding with its line and fix, and where time goes."""

from collections import Counter
from typing import Any, TextIO

import msgspec
from rich.text import Text

from parity.core.wording import count
from parity.doctor.evidence import Evidence, Time
from parity.doctor.finding import SEVERITIES, Finding
from parity.report.console import Console

SCHEMA = 1
COLOURS = {"error": "red", "warning": "yellow", "note": "cyan"}
PIPE_WIDTH = 100  # columns if the output is not a terminal
PARTS = ("forward", "loss", "backward", "update", "copies")
UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))


def show(findings: list[Finding], evidences: list[Evidence], file: TextIO) -> None:
    """Print what ran, the findings, the times and the number of findings."""
    console = Console(file, PIPE_WIDTH)
    for line in dict.fromkeys(map(_headline, evidences)):
        console.print(line, style="dim")
    for finding in findings:
        console.print()
        _block(finding, console)
    if findings:
        console.print()
    for evidence in evidences:
        for time in evidence.times:
            console.fold(f"{_rank(evidence)}{_timed(time)}")
    for evidence in evidences:
        if evidence.profile:
            console.print(f"{_rank(evidence)}profile: {evidence.profile}")
    console.print(_count(findings), style="bold")


def document(findings: list[Finding], evidences: list[Evidence]) -> dict[str, Any]:
    """Return the report as JSON values."""
    return {
        "schema": SCHEMA,
        "findings": [msgspec.to_builtins(finding) for finding in findings],
        "times": [
            {"side": evidence.side, "case": evidence.case, "rank": evidence.rank, **msgspec.to_builtins(time)}
            for evidence in evidences
            for time in evidence.times
        ],
        "environment": [
            {
                "side": evidence.side,
                "case": evidence.case,
                "rank": evidence.rank,
                "devices": _devices(evidence),
                "profile": evidence.profile,
            }
            for evidence in evidences
        ],
    }


def _headline(evidence: Evidence) -> str:
    """Return a line with the side, the number of processes and the devices that the program sees."""
    kinds: dict[str, list[str]] = {}
    for device, kind in _devices(evidence).items():
        kinds.setdefault(kind, []).append(device)
    devices = "; ".join(f"{', '.join(names)}{f': {kind}' if kind else ''}" for kind, names in kinds.items())
    ranks = f", {evidence.ranks} ranks" if evidence.ranks > 1 else ""
    steps = f", {count(len(evidence.steps), 'step')} observed"
    return f"{_program(evidence)}{ranks}{steps} on {devices or 'the host'}"


def _devices(evidence: Evidence) -> dict[str, str]:
    """Return each device with what it is physically; "" where that is not known."""
    physical = evidence.physical + [""] * len(evidence.devices)
    return dict(zip(evidence.devices, physical, strict=False))


def _block(finding: Finding, console: Console) -> None:
    """Print a finding: its id and place, what was observed, and the fix."""
    at = [part for part in (finding.where, finding.source) if part]
    head = Text.assemble((f"{finding.severity}: {finding.id}", f"bold {COLOURS[finding.severity]}"))
    names = " ".join(part for part in (finding.side, finding.case) if part)
    head.append(f"{f' ({names})' if names else ''}{' at ' if at else ''}{', '.join(at)}")
    console.print(head)
    for line in finding.message.splitlines():
        console.fold(f"  {line}")
    if finding.fix:
        # Not folded, so that the code can be copied.
        console.print(Text(f"  fix: {finding.fix}", style="bold"), soft_wrap=True)


def _rank(evidence: Evidence) -> str:
    return f"{_program(evidence)}{f' rank {evidence.rank}' if evidence.ranks > 1 else ''}: "


def _program(evidence: Evidence) -> str:
    """Return the side, and the case if it is a built-in one."""
    return " ".join(part for part in (evidence.side, evidence.case) if part)


def _timed(time: Time) -> str:
    """Return a step's time and its parts, all in the same unit."""
    scale, unit = next((candidate for candidate in UNITS if time.step >= candidate[0]), UNITS[-1])
    parts = [f"{part} {value / scale:.3g}" for part in PARTS if (value := getattr(time, part)) is not None]
    split = f": {', '.join(parts)}" if parts else ""
    return f"step {time.step / scale:.3g} {unit} on {time.device}, median of {time.steps}{split}"


def _count(findings: list[Finding]) -> str:
    if not findings:
        return "no findings"
    counts = Counter(finding.severity for finding in findings)
    parts = [count(counts[severity], severity) for severity in SEVERITIES if counts[severity]]
    return f"{count(len(findings), 'finding')}: {', '.join(parts)}"
