"""Print what --reproduce and --repair have done."""

import shlex
from pathlib import Path

from parity.core import wording
from parity.report.console import Console
from parity.results import CaseResult, Repair, TriedEdit


def show(case: CaseResult, console: Console) -> None:
    """Print what the scripts of a reproduction said, and each edit of a repair with what came of it."""
    for line in case.reproduced:
        console.print(f"  reproduced: {line}")
    repair = case.repair
    if repair is None:
        return
    for edit in repair.edits:
        console.print(f"  repair: {_said(edit)}")
        console.print(f"    - {edit.before}")
        console.print(f"    + {edit.after}")
    for line in repair.left:
        console.print(f"  repair: {line}")
    console.print(f"  repair: {_outcome(repair)}")


def _said(edit: TriedEdit) -> str:
    outcome = "accepted" if edit.accepted else f"refused: {edit.why}"
    return f"{edit.cause} at {edit.where}, {edit.file}:{edit.line}: {outcome}"


def _outcome(repair: Repair) -> str:
    count = sum(edit.accepted for edit in repair.edits)
    if not count:
        return f"no edit was accepted, and {repair.file} is empty"
    it, there = wording.agree(count, "it"), "" if Path(repair.root) == Path.cwd() else f" in {repair.root}"
    edits, patch = wording.count(count, "edit"), f"patch -p1 < {shlex.quote(repair.file)}"
    return f"{repair.verdict} with {edits}; to make {it}{there}, {patch}"
