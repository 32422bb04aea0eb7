"""Rules about the order of a training step and its updates: none, too late, too large, or with a graph that is kept."""

import itertools
import math
from collections.abc import Iterator

from parity.doctor.evidence import Event, Evidence, Optimizer, Step
from parity.doctor.finding import Finding, finding_at, make_finding
from parity.doctor.rules import facts, failures, words

GROWN = 100.0  # growth of the parameters in one update above which it counts as exploding
GROWS = "memory grows with every step"
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
    last, effect = backwards[-1], "gradients are computed, and no parameter has changed after all steps"
    if last.kept and last.scaled:
        return  # gradients are accumulated over more steps than were run: the update may still come
    message = f"{optimizers[-1].kind} never makes an update: {effect}."
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
            where = f"right before the update{f', which is at {update.source}' if update else ''}"
            clips = [[e for e in step.events if (e.what, e.source) == ("clip", clip.source)] for step in evidence.steps]
            often = words.repeated(max(map(facts.number, clips)))
            message = f"The gradients are clipped {why}: that changes nothing. It belongs {where}.{often}"
            fix = _moved(clip, "before", update.source if update else None)
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
            fix = _moved(clip, "after", unscale.source) if unscale else fix
            yield make_finding("error", "learning.clipped_scaled", "", clip.source, message, fix)


def cleared_early(evidence: Evidence) -> Iterator[Finding]:
    """Report gradients that are cleared between the backward pass and the update."""
    for step in evidence.steps:
        for lost in step.cleared:
            when = f"after the backward pass and before the update, at {lost.update}"
            message = f"The gradients are cleared {when}, which finds none: nothing is learned from them."
            fix = _moved(lost.clear, "after", lost.update)
            yield make_finding("error", "learning.cleared_early", "", lost.clear.source, message, fix)


def still(evidence: Evidence) -> Iterator[Finding]:
    """Report optimizers whose learning rate stays 0; not where a scheduler steps, which may raise it slowly."""
    if any(event.what == "schedule" for step in evidence.steps for event in step.events):
        return
    for optimizer in evidence.still:
        why = "its scheduler is never stepped" if optimizer.scheduler else "it was made so"
        message = f"The learning rate of {optimizer.kind} is 0 in all steps, since {why}: its updates change nothing."
        fix, line = "lr=1e-3", optimizer.faster
        if optimizer.scheduler:
            fix, line = f"{optimizer.scheduler}.step()  # after this line", None
        yield make_finding("error", "learning.rate_zero", "", optimizer.source, message, fix, line)


def scheduled_first(evidence: Evidence) -> Iterator[Finding]:
    """Report a scheduler that steps before the optimizer has made its first update."""
    events = next((step.events for step in evidence.steps if step.events), [])
    update = next((event for event in events if event.what == "update"), None)
    schedule = next((event for event in events if event.what == "schedule"), None)
    if schedule and update and events.index(schedule) < events.index(update):
        effect = "the first learning rate of the schedule is never used"
        message = f"The scheduler steps before the first update, at {update.source}: {effect}."
        fix = _moved(schedule, "after", update.source)
        yield make_finding("warning", "learning.scheduled_first", "", schedule.source, message, fix)


def _moved(event: Event, where: str, source: str | None) -> str:
    """Return an event's statement as moved before or after another line, or the update if that is not known."""
    line = "the update" if source is None else f"line {source.rpartition(':')[2]}"
    return f"{event.statement or event.what}  # moved {where} {line}"


def exploding(evidence: Evidence) -> Iterator[Finding]:
    """Report an update that makes the parameters many times as large as before, or not finite."""
    optimizers = ((optimizer, step) for step in evidence.steps for optimizer in step.optimizers)
    optimizer = next((optimizer for optimizer, step in optimizers if _explodes(optimizer, step)), None)
    if optimizer is None:
        return
    rate = f" with a learning rate of {optimizer.rate:g}" if optimizer.rate is not None else ""
    takes = f"takes the parameters from a root mean square of {optimizer.before:.3g} to {optimizer.after:.3g}"
    message = f"One update of {optimizer.kind}{rate} {takes}, which overwrites what they were before."
    fix = "lr=1e-3" if evidence.side == "torch" else "learning_rate=1e-3"
    yield make_finding("error", "learning.exploding", "", optimizer.source, message, fix, optimizer.slower)


def _explodes(optimizer: Optimizer, step: Step) -> bool:
    before, after = optimizer.before, optimizer.after
    if before is None or after is None or not math.isfinite(before):
        return False
    if step.not_finite and not math.isfinite(after):
        return False  # no learning rate makes a step finite whose loss or gradients are not
    return not after <= GROWN * max(before, SMALL)  # written so that NaN counts as exploding


def graph_kept(evidence: Evidence) -> Iterator[Finding]:
    """Report a loss whose graph outlives the next step, else what is kept of all steps that had a backward pass."""
    step = next((step for step in evidence.steps if step.held), Step())
    is_explained = any(each.failure or not each.backwards for each in evidence.steps)
    if step.held and step.carried:
        yield failures.state_kept(step.carried, GROWS)
    elif held := step.held:
        kept = "with the graph that computed it, which is still in memory when the next step is over"
        message = f"The loss is kept {kept}: {GROWS}."
        yield finding_at("warning", "memory.graph_kept", held.place, message, "total += loss.detach()", held.mended)
    elif (held := evidence.kept) and not is_explained:
        kept = "is kept in every step with the graph behind it, which is still in memory when all steps are over"
        message, fix = f"What this line computes {kept}: {GROWS}.", "bank.append(features.detach())"
        yield finding_at("warning", "memory.graph_kept", held.place, message, fix, held.mended)
