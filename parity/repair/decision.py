"""Whether a comparison with an edit is better than that without it."""

from typing import Final, Literal, NamedTuple

from parity.config.pair import UNNAMED
from parity.results import CaseResult, Cause

Key = tuple[str, str]
Outcome = Literal["accepted", "uncertain", "refused"]
CLEAN: Final = ("match", "subprecision")


class Decision(NamedTuple):
    """What came of an edit, and why it was not accepted.

    It is uncertain if a cause came to light that may have been there before, behind the one that is repaired: one
    without a name, or one that was found by experiment, which is made at the first divergence alone.
    """

    outcome: Outcome
    why: str = ""


def keys(result: CaseResult) -> set[Key]:
    """Return the id and the place of every cause."""
    return {key(cause) for cause in result.causes}


def key(cause: Cause) -> Key:
    """Return the id and the place of a cause."""
    return cause.id, cause.where


def decide(before: CaseResult, after: CaseResult, meant: set[Key]) -> Decision:
    """Return what came of edits that were to remove the causes in `meant`."""
    if after.verdict == "error":
        return Decision("refused", f"the port no longer runs: {after.reason.splitlines()[0]}")
    if left := sorted(meant & keys(after)):
        return Decision("refused", f"{_said(left[0])} is still there")
    if before.verdict == "diverged" and after.verdict in CLEAN:
        return _varied(before, after) or Decision("accepted")  # what is left was there before, and float32 hides it
    new = sorted(keys(after) - keys(before))
    found_at_first = {key(cause) for cause in after.causes if cause.id in UNNAMED or cause.changes}
    if named := [each for each in new if each not in found_at_first]:
        return Decision("refused", f"it brings in {_said(named[0])}")
    if new and (before.verdict in CLEAN or {where for _, where in new} & {at for _, at in meant}):
        return Decision("refused", f"it brings in {_said(new[0])}")
    if refused := _varied(before, after):
        return refused
    return Decision("uncertain", f"behind it is {_said(new[0])}") if new else Decision("accepted")


def _varied(before: CaseResult, after: CaseResult) -> Decision | None:
    """Return the refusal of edits that make the pair diverge on a variation of its inputs; None if they do not."""
    failing = _failing(after) - _failing(before)
    return Decision("refused", f"the pair now diverges on {min(failing)}") if before.variations and failing else None


def _failing(result: CaseResult) -> set[str]:
    return {each.name for each in result.variations if each.verdict not in (*CLEAN, "skipped")}


def _said(cause: Key) -> str:
    return f"{cause[0]} at {cause[1]}"
