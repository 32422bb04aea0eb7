"""The order of a step's training, and what its updates do: nothing, too late, too much, or with a graph kept."""

import itertools
import math
from collections.abc import Iterator

from parity.doctor.evidence import Event, Evidence, Optimizer
from parity.doctor.finding import Finding
from parity.doctor.rules.facts import found

GROWN = 100.0  # times their size: an update that does this to the parameters replaces them
SMALL = 0.01  # root mean square below which parameters count as if they had that size


def no_step(evidence: Evidence) -> Iterator[Finding]:
    """Backward passes, an optimizer that never makes an update, and parameters that all steps leave as they are."""
    backwards = [backward for step in evidence.steps for backward in step.backwards]
    every = [optimizer for step in evidence.steps for optimizer in step.optimizers]
    # One of Keras's holds nothing before its first update.
    optimizers = [optimizer for optimizer in every if optimizer.parameters or evidence.side == "keras"]
    idle = optimizers and not any(optimizer.stepped for optimizer in optimizers)
    failed = evidence.later or any(step.failure for step in evidence.steps)
    if not (evidence.own_step and backwards and idle) or failed or evidence.changed is not False:
        return
    last = backwards[-1]
    if last.kept and last.scaled:
        return  # gradients of more steps than were run are accumulated, each divided by their number
    message = (
        f"{optimizers[-1].kind} never makes an update: gradients are computed, and no parameter has changed after all "
        "steps."
    )
    generic = "optimizer.step()" if evidence.side == "torch" else "optimizer.apply(gradients, variables)"
    yield found("error", "learning.no_step", "", last.source, message, f"{last.update or generic}  # after this line")


def clipped_in_vain(evidence: Evidence) -> Iterator[Finding]:
    """Gradients that are clipped, and cleared or added to before an update uses them."""
    events = [event for step in evidence.steps for event in step.events]
    changes = [event for event in events if event.what in ("backward", "clip", "update", "clear")]
    following = [(event, after) for event, after in itertools.pairwise(changes) if event.what == "clip"]
    useful = {event.source for event, after in following if after.what in ("update", "clip")}
    for clip, after in following:
        if clip.source not in useful:
            why = "before the backward pass computes them" if after.what == "backward" else "after the update used them"
            update = next((event for event in changes if event.what == "update"), None)
            to = f", which is at {update.source}" if update else ""
            message = f"The gradients are clipped {why}: that changes nothing. It belongs right before the update{to}."
            yield found("error", "learning.clipped_in_vain", "", clip.source, message, _moved(clip, "before", update))
            return


def scheduled_first(evidence: Evidence) -> Iterator[Finding]:
    """A scheduler that steps before the optimizer has made its first update."""
    events = next((step.events for step in evidence.steps if step.events), [])
    update = next((event for event in events if event.what == "update"), None)
    schedule = next((event for event in events if event.what == "schedule"), None)
    if schedule and update and events.index(schedule) < events.index(update):
        message = (
            f"The scheduler steps before the first update, at {update.source}: the first learning rate of the schedule "
            "is never used."
        )
        fix = _moved(schedule, "after", update)
        yield found("warning", "learning.scheduled_first", "", schedule.source, message, fix)


def _moved(event: Event, where: str, update: Event | None) -> str:
    line = f" line {update.source.rpartition(':')[2]}" if update else " the update"
    return f"{event.statement or event.what}  # moved {where}{line}"


def exploding(evidence: Evidence) -> Iterator[Finding]:
    """An update that leaves parameters many times as large as before, or not finite."""
    for step in evidence.steps:
        for optimizer in step.optimizers:
            if _explodes(optimizer):
                yield _too_large(evidence, optimizer)
                return


def _explodes(optimizer: Optimizer) -> bool:
    before, after = optimizer.before, optimizer.after
    if before is None or after is None or not math.isfinite(before):
        return False
    return not after <= GROWN * max(before, SMALL)  # also if it is not a number


def _too_large(evidence: Evidence, optimizer: Optimizer) -> Finding:
    rate = f" with a learning rate of {optimizer.rate:g}" if optimizer.rate is not None else ""
    message = (
        f"One update of {optimizer.kind}{rate} takes the parameters from a root mean square of {optimizer.before:.3g} "
        f"to {optimizer.after:.3g}: nothing of what they were is left."
    )
    generic = "lr=1e-3" if evidence.side == "torch" else "learning_rate=1e-3"
    slower = optimizer.slower
    fix = slower.fix if slower else generic
    return found("error", "learning.exploding", "", slower.source if slower else optimizer.source, message, fix)


def graph_kept(evidence: Evidence) -> Iterator[Finding]:
    """The graph of a step's loss that is still there when the step after it is over."""
    for step in evidence.steps:
        if step.held:
            line = step.held.mended
            message = (
                "The loss is kept with the graph that made it, which is still there when the next step is over: memory "
                "grows with every step."
            )
            source = line.source if line else step.held.place.source
            fix = line.fix if line else "total += loss.detach()"
            yield found("warning", "memory.graph_kept", step.held.place.module, source, message, fix)
            return
