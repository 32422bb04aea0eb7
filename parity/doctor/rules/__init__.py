"""The rules, which turn evidence into findings: `findings` applies all of them, `hanging` those for ranks that wait."""

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence

from parity.doctor.evidence import Evidence, Waiting
from parity.doctor.finding import IDS, SEVERITIES, Finding
from parity.doctor.rules import (
    facts,
    failures,
    functions,
    learning,
    losses,
    misplaced,
    operands,
    placement,
    replicas,
    training,
    transfers,
)
from parity.doctor.rules.hanging import Logs, hanging

__all__ = ["IDS", "findings", "hanging"]
# In this order: of findings with the same id at the same line the first one counts.
FILES = (failures, misplaced, placement, transfers, functions, operands, learning, training, losses)
RULE = {"evidence": Evidence, "return": Iterator[Finding]}  # the annotations of every rule
RULES = [
    function
    for file in FILES
    for name, function in vars(file).items()
    if not name.startswith("_") and getattr(function, "__annotations__", None) == RULE
]
LOST = re.compile("Connection (closed|reset) by peer", re.IGNORECASE)
# Findings that are consequences of another one (the key) if both are about the same line.
CONSEQUENCES = {
    "learning.no_gradient": ("sync.numpy", "sync.cpu", "copy.constant"),
    "type.float_ids": ("type.float64_input",),
    "function.frozen": ("copy.constant",),
    "learning.made_in_call": ("step.raised", "copy.constant"),
}
# Findings that are consequences of another one wherever they are.
EVERYWHERE = {
    "learning.exploding": ("finite.forward", "finite.backward", "learning.zero_gradient"),
    "function.compiled": ("function.retraced",),
    "learning.undetached": ("learning.no_optimizer",),
    "learning.made_in_call": ("learning.no_optimizer",),
}


def findings(ranks: list[Evidence], logs: Logs = (), waiting: Sequence[Waiting] = ()) -> list[Finding]:
    """Return all findings, the worst first; what several ranks or steps show is reported once.

    `logs`: the collective calls of each rank. `waiting`: where the ranks were when the time was over.
    """
    reported = _once(itertools.chain(replicas.apart(ranks, logs), placement.shared_gpu(ranks)))
    of_ranks = ((finding, str(evidence.rank)) for evidence in ranks for finding in _of_rank(evidence, ranks))
    for group in facts.grouped(of_ranks, lambda pair: _key(pair[0])):
        (finding, _), on_ranks = group[0], [rank for _, rank in group]
        if len(on_ranks) < len(ranks):
            finding.message += f" On rank {', '.join(on_ranks)} only."
        reported.append(finding)
    unmatched = hanging(logs, waiting)
    # If a rank raised an exception, other ranks waited for it: only calls that do not match are then worth reporting.
    # If the calls do not match, a lost connection is the consequence.
    failures = [step.failure for evidence in ranks for step in evidence.steps if step.failure]
    if any(not LOST.search(failure.message) for failure in failures):
        unmatched = [finding for finding in unmatched if finding.id in ("collective.order", "collective.shape")]
    if unmatched:
        reported = [finding for finding in reported if finding.id != "step.raised" or not LOST.search(finding.message)]
    reported += unmatched
    return sorted(reported, key=lambda each: (SEVERITIES.index(each.severity), each.where, each.source, each.id))


def _key(finding: Finding) -> tuple[str, str, str]:
    return finding.id, finding.where, finding.source


def _once(reported: Iterable[Finding]) -> list[Finding]:
    """Return findings, of those with one id at one place the first."""
    return [group[0] for group in facts.grouped(reported, _key)]


def _of_rank(evidence: Evidence, ranks: Sequence[Evidence]) -> list[Finding]:
    """Return the findings of a rank, each once, without those that another finding explains."""
    of_rules = itertools.chain.from_iterable(rule(evidence) for rule in RULES)
    reported = _once(itertools.chain(of_rules, learning.no_optimizer(evidence, ranks)))
    return [finding for finding in reported if not any(_explains(cause, finding) for cause in reported)]


def _explains(cause: Finding, finding: Finding) -> bool:
    if finding.id in EVERYWHERE.get(cause.id, ()):
        return True
    if cause.source != finding.source or cause is finding:
        return False
    worse = cause.severity == "error" != finding.severity
    return finding.id in CONSEQUENCES.get(cause.id, ()) or (cause.id == finding.id and worse)
