"""Rules about calls that virtual GPUs do not imitate: what of the program was therefore not examined."""

from collections.abc import Iterator

from parity.doctor.evidence import Evidence, Step
from parity.doctor.evidence.ops import Failure
from parity.doctor.evidence.pretended import NotPretended
from parity.doctor.finding import Finding
from parity.doctor.rules.facts import make_finding

ERROR = "NotPretendedError"  # what a call raises without which the program cannot go on


def not_pretended(evidence: Evidence) -> Iterator[Finding]:
    """Report the calls that did not end the program, those with the same consequence together."""
    groups: dict[str, list[NotPretended]] = {}
    for call in evidence.not_pretended:
        groups.setdefault(call.instead, []).append(call)
    for instead, calls in groups.items():
        others = [f"{call.call} at {call.source}" for call in calls[1:]]
        also = f" (also {', '.join(others)})" if others else ""
        message = f"Virtual GPUs do not imitate {calls[0].call}{also}: {instead}."
        yield make_finding("note", "gpu.not_pretended", "", calls[0].source, message, "")


def ended(_: Evidence, __: Step, failure: Failure) -> Finding | None:
    """Return the finding for a call without which the program could not go on."""
    if failure.exception != ERROR:
        return None
    message = f"{failure.message} The step ends here: the findings are about what ran before."
    return make_finding("error", "gpu.not_pretended", failure.place.module, failure.place.source, message, "")
