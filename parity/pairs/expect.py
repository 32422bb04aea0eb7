"""Accepted differences: what a pair's file expects has to be there, and what is there has to be expected."""

from fnmatch import fnmatchcase
from typing import Any

from parity.pairs.schema import Expect
from parity.results import CaseResult

Cause = dict[str, Any]


def judge_expected(result: CaseResult, expected: list[Expect]) -> None:
    """Change a verdict by what the user accepts.

    A case whose causes are all accepted is a match: each module is judged by its own inputs, so that an accepted
    cause hides no other. An accepted difference that does not occur is `diverged`.
    """
    if not expected or result.verdict == "error":
        return
    gone = [each for each in expected if not any(_is(each, cause) for cause in result.causes)]
    if gone:
        result.verdict = "diverged"
        result.reason = "; ".join(
            f"the expected difference {each.cause} at {each.where} does not occur: take it out" for each in gone
        )
        return
    known = [(cause, next((each for each in expected if _is(each, cause)), None)) for cause in result.causes]
    if result.verdict != "match" and all(each for _, each in known):
        result.verdict, result.findings, result.first_divergence = "match", [], None
        reasons = dict.fromkeys(each.reason for _, each in known if each)
        result.reason = "; ".join(f"accepted: {reason}" for reason in reasons)
    result.expected = [{**cause, "reason": each.reason} for cause, each in known if each]


def _is(expected: Expect, cause: Cause) -> bool:
    return bool(cause["id"] == expected.cause and fnmatchcase(str(cause["where"]), expected.where))
