"""The rules, which make findings of what the ranks saw: `findings` applies all, `hanging` is for ranks that wait."""

import re
from collections.abc import Callable, Iterator, Sequence

from parity.doctor.evidence import Evidence, Waiting
from parity.doctor.finding import SEVERITIES, Finding
from parity.doctor.rules import (
    batches,
    copies,
    dtypes,
    failures,
    finite,
    functions,
    learning,
    losses,
    modes,
    placement,
    shapes,
    strays,
    syncs,
    training,
    updates,
)
from parity.doctor.rules.hanging import Logs, hanging
from parity.doctor.rules.ids import IDS

__all__ = ["IDS", "findings", "hanging"]

RULES: tuple[Callable[[Evidence], Iterator[Finding]], ...] = (
    failures.failed,
    strays.hidden,
    strays.placed,
    strays.optimizer_state,
    placement.one_device,
    placement.lopsided,
    placement.unused,
    placement.soft,
    batches.copied_again,
    batches.not_contiguous,
    batches.not_pinned,
    copies.constant,
    copies.parameter,
    copies.implicit,
    copies.backward,
    syncs.waits,
    functions.retraced,
    functions.eager,
    dtypes.float64_parameter,
    dtypes.float64_input,
    dtypes.mixed_parameters,
    dtypes.float_ids,
    dtypes.loss_scaling,
    learning.no_gradient,
    learning.unused_ddp,
    learning.send_without_backward,
    learning.zero_gradient,
    updates.no_optimizer,
    updates.frozen,
    updates.not_cleared,
    updates.not_normalised,
    training.no_step,
    training.clipped_in_vain,
    training.scheduled_first,
    training.exploding,
    training.graph_kept,
    losses.activated_twice,
    losses.not_logarithms,
    losses.raw_logits,
    losses.shuffled_apart,
    modes.in_eval,
    modes.in_train,
    shapes.sequence_first,
    shapes.loss_broadcast,
    shapes.class_axis,
    finite.not_finite,
)

LOST = re.compile("Connection (closed|reset) by peer", re.IGNORECASE)
# What comes with another finding of the same line.
CONSEQUENCES = {
    "learning.no_gradient": ("sync.numpy", "sync.cpu", "copy.constant"),
    "type.float_ids": ("type.float64_input",),
}

# What comes with another finding wherever that is.
EVERYWHERE = {"learning.exploding": ("finite.forward", "finite.backward", "learning.zero_gradient")}


def findings(ranks: list[Evidence], logs: Logs = (), waiting: Sequence[Waiting] = ()) -> list[Finding]:
    """All there are, the worst first; what several ranks or steps show is told once.

    `logs`: the collectives of each rank; `waiting`: where the ranks were when the time was over.
    """
    seen: dict[tuple[str, str, str], tuple[Finding, list[int]]] = {}
    for evidence in ranks:
        for finding in _of_rank(evidence):
            key = (finding.id, finding.where, finding.source)
            seen.setdefault(key, (finding, []))[1].append(evidence.rank)
    for finding, where in seen.values():
        if len(where) < len(ranks):
            finding.message += f" On rank {', '.join(map(str, where))} only."
    told = [finding for finding, _ in seen.values()]
    return sorted(_with_cause(ranks, told, hanging(logs, waiting)), key=_order)


def _with_cause(ranks: list[Evidence], told: list[Finding], waits: list[Finding]) -> list[Finding]:
    """Where ranks do not meet: a connection that is lost is no news, nor that a rank which failed was waited for."""
    failures = [step.failure for evidence in ranks for step in evidence.steps if step.failure]
    if any(not LOST.search(failure.message) for failure in failures):
        waits = [finding for finding in waits if finding.id in ("collective.order", "collective.shape")]
    if waits:
        told = [finding for finding in told if finding.id != "step.raised" or not LOST.search(finding.message)]
    return told + waits


def _of_rank(evidence: Evidence) -> list[Finding]:
    """Those of a rank, each once, and no consequence beside its cause."""
    every: dict[tuple[str, str, str], Finding] = {}
    for rule in RULES:
        for finding in rule(evidence):
            finding.side = evidence.side
            every.setdefault((finding.id, finding.where, finding.source), finding)
    return [finding for finding in every.values() if not any(_explains(cause, finding) for cause in every.values())]


def _explains(cause: Finding, finding: Finding) -> bool:
    """Whether it is told by another finding: by what spoils all behind it, by a cause or a failure of the same line."""
    if finding.id in EVERYWHERE.get(cause.id, ()):
        return True
    if cause.source != finding.source or cause is finding:
        return False
    worse = cause.severity == "error" != finding.severity
    return finding.id in CONSEQUENCES.get(cause.id, ()) or (cause.id == finding.id and worse)


def _order(finding: Finding) -> tuple[int, str, str, str]:
    return SEVERITIES.index(finding.severity), finding.where, finding.source, finding.id
