"""Apply the accepted differences ([[expect]]) of a pair's file to its verdict.

Every difference that the file expects has to occur, and every difference that occurs has to be expected.
docs/accepting.md says which tensors follow from an accepted cause.
"""

from typing import Any

from msgspec.structs import replace

from parity.config.pair import Expect
from parity.core.wording import agree
from parity.diagnose.diagnosis import Examined
from parity.pairs.accepted import Accepted
from parity.pairs.evidence import Evidence
from parity.results import CaseResult, Check, Divergence, Verdict, worst
from parity.trace.words import in_words
from parity.verdict.traces import Unequal


def apply_expected(examined: Examined, expected: list[Expect], evidence: Evidence) -> None:
    """Change the verdict of a case according to what the user accepts.

    The case becomes a match if all of its causes are accepted and every tensor that is not a match is within an
    accepted size or follows from an accepted cause. It becomes `inconclusive` if this cannot be told of a gradient or
    an update behind an accepted cause, and `diverged` if an accepted difference does not occur.
    """
    result = examined.result
    if not expected or result.verdict == "error":
        return
    accepted = Accepted(examined, expected, evidence)
    if missing := [each for each in expected if not (accepted.occurs(each) or accepted.may_be_hidden(each))]:
        result.verdict, result.reason = "diverged", "; ".join(map(accepted.complaint, missing))
        return
    result.expected = [replace(cause, reason=by.reason) for cause, by in accepted.causes if by]
    result.expected += accepted.sizes()
    if result.verdict not in ("diverged", "subprecision") or not all(by for _, by in accepted.causes):
        return
    if unaccepted := [accepted.left(tensor) for tensor in examined.unequal if not accepted.holds(tensor)]:
        _report_unaccepted(result, unaccepted)
        return
    if undecidable := [tensor for tensor in examined.unequal if not accepted.is_decidable(tensor)]:
        _report_undecidable(result, undecidable, accepted)
        return
    result.verdict, result.first_divergence = _verdict(result), None
    result.findings = [finding for finding in result.findings if not accepted.explains(finding)]
    result.reason = "; ".join(dict.fromkeys(f"accepted: {cause.reason}" for cause in result.expected))
    result.not_compared += accepted.not_compared()


def left_over(examined: Examined, expected: list[Expect], evidence: Evidence) -> tuple[Verdict, Divergence] | None:
    """Return the verdict on what is left where every cause is accepted, and the first difference that makes it so.

    None if nothing is left, if there is a cause that is not accepted, or if all that is left is what float32 cannot
    see while it cannot be told whether an accepted difference hides a fault.
    """
    if not expected or examined.result.verdict != "diverged":
        return None
    accepted = Accepted(examined, expected, evidence)
    if not all(by for _, by in accepted.causes):
        return None
    left = [accepted.left(tensor) for tensor in examined.unequal if not accepted.holds(tensor)]
    verdict = worst([tensor.verdict for tensor in left])
    if verdict == "match" or (verdict == "subprecision" and not all(map(accepted.is_decidable, examined.unequal))):
        return None
    first = next(tensor for tensor in left if tensor.verdict == verdict)
    return verdict, _left(first, evidence)


def _left(tensor: Unequal, evidence: Evidence) -> Divergence:
    """Return a difference that no accepted cause explains."""
    size = evidence.size(tensor)
    apart = (
        f"{size.difference:.1e} apart in float64, {size.relative:.1e} of the largest value" if size else "it differs"
    )
    bits = evidence.needed - size.missing if size else None
    return _divergence(tensor, f"{apart}, and this follows from nothing accepted or inherent", bits)


def _verdict(result: CaseResult) -> Any:
    """Return the verdict of a case whose differences are all accepted.

    Accepting differences does not settle a check that could not be judged: the case stays `inconclusive` then.
    """
    checks = [check for check in result.checks.values() if isinstance(check, Check)]
    return "inconclusive" if any(check.verdict == "inconclusive" for check in checks) else "match"


def _report_unaccepted(result: CaseResult, unaccepted: list[Unequal]) -> None:
    """Name the first tensor that neither follows from an accepted cause nor is within an accepted size."""
    verdict = worst([tensor.verdict for tensor in unaccepted])
    first = next(tensor for tensor in unaccepted if tensor.verdict == verdict)
    further = len(unaccepted) - 1
    more = f"; so {agree(further, 'does')} {further} more" if further else ""
    result.reason = (
        f"{in_words(first.kind, first.name)} does not follow from an accepted cause and is within no accepted size, "
        f"yet it differs{more}"
    )
    result.first_divergence = _divergence(first, result.reason)


def _report_undecidable(result: CaseResult, undecidable: list[Unequal], accepted: Accepted) -> None:
    """Name the first gradient or update in which an accepted difference may hide a fault."""
    first = undecidable[0]
    more = f" (and {len(undecidable) - 1} more)" if len(undecidable) > 1 else ""
    result.verdict = "inconclusive"
    result.reason = (
        f"{in_words(first.kind, first.name)}{more} {accepted.apart(first)}: no formula tells whether the accepted "
        "difference alone makes it so; accept it by its size ([[expect]] with where and largest_difference), or mend "
        "the cause"
    )
    result.first_divergence = _divergence(first, result.reason)


def _divergence(tensor: Unequal, reason: str, bits: float | None = None) -> Divergence:
    return Divergence(
        step=tensor.step, kind=tensor.kind, name=tensor.name, replica=tensor.replica, bits=bits, reason=reason
    )
