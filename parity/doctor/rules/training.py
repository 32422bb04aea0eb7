"""Rules about the order of a training step and its updates: none, too late, too large, or with a graph that is kept."""

import itertools
import math
from collections.abc import Iterator

from parity.doctor.evidence import Code, Event, Evidence, Held, Optimizer, Step
from parity.doctor.finding import Finding, make_finding
from parity.doctor.rules import facts, failures, words

GROWN = 100.0  # growth of the parameters in one update above which it counts as exploding
SMALL = 0.01  # parameters with a smaller root mean square count as this large: zeros may grow by any factor


def no_step(evidence: Evidence) -> Iterator[Finding]:
    """Report backward passes without any update by the optimizer, if no parameter changes over all steps."""
    backwards = [backward for step in evidence.steps for backward in step.backwards]
    all_optimizers = [optimizer for step in evidence.steps for optimizer in step.optimizers]
    # A Keras optimizer holds no parameters before its first update.
    optimizers = [optimizer for optimizer in all_optimizers if optimizer.parameters or evidence.side == "keras"]
    idle = optimizers and not any(optimizer.stepped for optimizer in optimizers)
    failed = evidence.later or any(step.failure for step in evidence.steps)
    if not (evidence.own_step and backwards and idle) or failed or evidence.changed is not False:
        return
    last = backwards[-1]
    if last.kept and last.scaled:
        return  # gradients are accumulated over more steps than were run: the update may still come
    message = (
        f"{optimizers[-1].kind} never makes an update: gradients are computed, and no parameter has changed after all "
        "steps."
    )
    generic = "optimizer.step()" if evidence.side == "torch" else "optimizer.apply(gradients, variables)"
    fix = f"{last.update or generic}  # after this line"
    yield make_finding("error", "learning.no_step", "", last.source, message, fix)


def clipped_in_vain(evidence: Evidence) -> Iterator[Finding]:
    """Report gradients that are clipped, and then cleared or overwritten before an update uses them."""
    events = [event for step in evidence.steps for event in step.events]
    changes = [event for event in events if event.what in ("backward", "clip", "update", "clear")]
    following = [(event, after) for event, after in itertools.pairwise(changes) if event.what == "clip"]
    useful = {event.source for event, after in following if after.what in ("update", "clip")}
    for clip, after in following:
        if clip.source not in useful:
            why = "before the backward pass computes them" if after.what == "backward" else "after the update used them"
            update = next((event for event in changes if event.what == "update"), None)
            to = f", which is at {update.source}" if update else ""
            clips = [[e for e in step.events if (e.what, e.source) == ("clip", clip.source)] for step in evidence.steps]
            message = (
                f"The gradients are clipped {why}: that changes nothing. It belongs right before the update{to}."
                f"{words.repeated(max(map(facts.number, clips)))}"
            )
            fix = _moved(clip, "before", update)
            yield make_finding("error", "learning.clipped_in_vain", "", clip.source, message, fix)
            return


def clipped_scaled(evidence: Evidence) -> Iterator[Finding]:
    """Report gradients that are clipped while they are still multiplied by a GradScaler's scale."""
    for step in evidence.steps:
        for clip in (event for event in step.events if event.scaled):
            after = step.events[step.events.index(clip) + 1 :]
            before_next = itertools.takewhile(lambda event: event.what != "backward", after)
            unscale = next((event for event in before_next if event.what == "unscale"), None)
            message = (
                "The gradients are clipped while they are still multiplied by the GradScaler's scale, thousands of "
                "times too large: the scaler then divides what was clipped, and next to nothing is learned."
            )
            fix = f"{clip.unscale or 'scaler.unscale_(optimizer)'}  # before this line"
            fix = _moved(clip, "after", unscale) if unscale else fix
            yield make_finding("error", "learning.clipped_scaled", "", clip.source, message, fix)


def cleared_early(evidence: Evidence) -> Iterator[Finding]:
    """Report gradients that are cleared between the backward pass and the update."""
    for step in evidence.steps:
        for lost in step.cleared:
            message = (
                f"The gradients are cleared after the backward pass and before the update, at {lost.update}, which "
                "finds none: nothing is learned from them."
            )
            update = Event(what="update", source=lost.update)
            fix = _moved(lost.clear, "after", update)
            yield make_finding("error", "learning.cleared_early", "", lost.clear.source, message, fix)


def still(evidence: Evidence) -> Iterator[Finding]:
    """Report optimizers whose learning rate stays 0; not where a scheduler steps, which may raise it slowly."""
    if any(event.what == "schedule" for step in evidence.steps for event in step.events):
        return
    for optimizer in evidence.still:
        why = "its scheduler is never stepped" if optimizer.scheduler else "it was made so"
        message = f"The learning rate of {optimizer.kind} is 0 in all steps, since {why}: its updates change nothing."
        line = optimizer.faster or Code(source=optimizer.source, fix="lr=1e-3")
        if optimizer.scheduler:
            line = Code(source=optimizer.source, fix=f"{optimizer.scheduler}.step()  # after this line")
        yield make_finding("error", "learning.rate_zero", "", line.source, message, line)


def scheduled_first(evidence: Evidence) -> Iterator[Finding]:
    """Report a scheduler that steps before the optimizer has made its first update."""
    events = next((step.events for step in evidence.steps if step.events), [])
    update = next((event for event in events if event.what == "update"), None)
    schedule = next((event for event in events if event.what == "schedule"), None)
    if schedule and update and events.index(schedule) < events.index(update):
        message = (
            f"The scheduler steps before the first update, at {update.source}: the first learning rate of the schedule "
            "is never used."
        )
        fix = _moved(schedule, "after", update)
        yield make_finding("warning", "learning.scheduled_first", "", schedule.source, message, fix)


def _moved(event: Event, where: str, update: Event | None) -> str:
    line = f" line {update.source.rpartition(':')[2]}" if update else " the update"
    return f"{event.statement or event.what}  # moved {where}{line}"


def exploding(evidence: Evidence) -> Iterator[Finding]:
    """Report an update that makes the parameters many times as large as before, or not finite."""
    for step in evidence.steps:
        for optimizer in step.optimizers:
            if _explodes(optimizer, step):
                yield _too_large(evidence, optimizer)
                return


def _explodes(optimizer: Optimizer, step: Step) -> bool:
    """Return whether the largest update of an optimizer is much larger than the parameters."""
    before, after = optimizer.before, optimizer.after
    if before is None or after is None or not math.isfinite(before):
        return False
    if step.not_finite and not math.isfinite(after):
        return False  # no learning rate makes a step finite whose loss or gradients are not
    return not after <= GROWN * max(before, SMALL)  # written so that NaN counts as exploding


def _too_large(evidence: Evidence, optimizer: Optimizer) -> Finding:
    rate = f" with a learning rate of {optimizer.rate:g}" if optimizer.rate is not None else ""
    message = (
        f"One update of {optimizer.kind}{rate} takes the parameters from a root mean square of {optimizer.before:.3g} "
        f"to {optimizer.after:.3g}, which overwrites what they were before."
    )
    generic = "lr=1e-3" if evidence.side == "torch" else "learning_rate=1e-3"
    line = optimizer.slower or Code(source=optimizer.source, fix=generic)
    return make_finding("error", "learning.exploding", "", line.source, message, line)


def features_kept(evidence: Evidence) -> Iterator[Finding]:
    """Report tensors that are kept from all steps with their graphs, where each step had a backward pass."""
    explained = any(step.held or step.failure or not step.backwards for step in evidence.steps)
    if evidence.kept and not explained:
        message = (
            "What this line computes is kept in every step with the graph behind it, which is still in memory when all "
            "steps are over: memory grows with every step."
        )
        yield _kept(evidence.kept, message, "bank.append(features.detach())")


def _kept(held: Held, message: str, generic: str) -> Finding:
    line = held.mended or Code(source=held.place.source, fix=generic)
    return make_finding("warning", "memory.graph_kept", held.place.module, line.source, message, line)


def graph_kept(evidence: Evidence) -> Iterator[Finding]:
    """Report a loss whose graph is still in memory when the step after it is over."""
    for step in evidence.steps:
        if step.held and step.carried:
            yield failures.state_kept(step.carried, "memory grows with every step")
            return
        if step.held:
            message = (
                "The loss is kept with the graph that computed it, which is still in memory when the next step "
                "is over: memory grows with every step."
            )
            yield _kept(step.held, message, "total += loss.detach()")
            return
