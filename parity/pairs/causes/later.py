"""Name by experiment what differs after the forward pass of a pair: the loss, a gradient, a buffer, an update."""

import numpy as np
from msgspec.structs import replace

from parity.config.pair import UNKNOWN
from parity.core.errors import BackendError
from parity.diagnose import losses, optimizers
from parity.diagnose.diagnosis import Examined
from parity.diagnose.experiment import later, micro_batches, ratios
from parity.diagnose.experiment.causes import causes
from parity.diagnose.experiment.description import each_once, with_descriptions
from parity.diagnose.experiment.later import Parted, difference
from parity.diagnose.experiment.taken import WIRING
from parity.pairs.causes.experiment import MOST_ALIKE, Experiment
from parity.pairs.causes.further import Questions
from parity.pairs.hidden import has_own_optimizer
from parity.results import Cause
from parity.runtime.experiment import Question
from parity.trace import keys
from parity.trace.manifest import Trace


def name_causes(experiment: Experiment, examined: Examined) -> None:
    """Replace the unknown causes of what comes after a forward pass, or describe the difference in words."""
    result = examined.result
    for first in later.parted(result, examined.unequal):
        asked = later.telling(first, examined.unequal, experiment.traces)
        replayed = examined.replayed
        if asked.kind == keys.UPDATE and replayed and replayed.reproduces(asked.name, 0, frozen=False):
            continue  # an optimizer's formula explains the updates: nothing else is behind them
        with np.errstate(all="ignore"):  # the tensors may hold any numbers
            words = difference(asked.kind, asked.name, *later.both(asked, experiment.traces))
            is_own = asked.kind == keys.UPDATE and has_own_optimizer(experiment.file.pair)
            moved = later.moved(asked, examined.unequal)
            named, followers = optimizers.explained_updates(*experiment.traces, moved) if is_own else ([], moved)
            followers = list(followers if named else moved)
            alike: list[Cause] = []
            try:
                found = named or _found(experiment, asked, examined)
                named = named or [later.as_later(cause, asked.kind, words) for cause in found]
                if asked.kind == "loss" and named and {cause.id for cause in named} == {WIRING}:
                    factor = ratios.normalised(asked, experiment.traces)  # says what an op without an operand does
                    named = [factor] if factor else named
                elif asked.kind == "loss" and not named:
                    named, words = _causes_of_loss(experiment, asked, words)
                elif not named:
                    named = _told_by_numbers(asked, experiment.traces, is_own)
                    followers = [*followers, *(f"{cause.where}.running_var" for cause in named)]
                alike = _alike(experiment, asked, examined) if found and asked.kind == "gradient" else []
            except BackendError as error:
                reason = f"what comes after the forward pass could not be computed again: {error}"
                result.not_compared.append(reason)
        if named:
            result.causes = later.with_named(result.causes, asked, named, followers)
            result.causes += alike
        if words:
            result.causes = [_described(cause, asked, words) for cause in result.causes]
    result.causes = each_once(result.causes)


def _found(experiment: Experiment, asked: Parted, examined: Examined) -> list[Cause]:
    """Return the causes that the forward pass has, or the module of a difference, or else the modules around it."""
    scopes = _questions(experiment, asked)
    if scopes and asked.step == 0 and (found := experiment.behind(examined, scopes[-1])):
        return found
    answers = (_named(experiment, asked.kind, {asked.where: both_sides}) for both_sides in scopes)
    return next(filter(None, (found[asked.where] for found in answers)), [])


def _causes_of_loss(experiment: Experiment, asked: Parted, words: str) -> tuple[list[Cause], str]:
    """Return the cause that the numbers or the ops of a loss tell, and its description with the lines of both sides."""
    if cause := ratios.normalised(asked, experiment.traces) or ratios.penalised(asked, experiment.traces):
        return [cause], words
    if not (scopes := _questions(experiment, asked)):
        return [], words
    described = experiment.described({asked.where: scopes[-1]})[asked.where]
    unknown = Cause(id=UNKNOWN, where=asked.where, evidence="")
    (cause,) = with_descriptions([unknown], {asked.where: described})
    named = [cause] if cause.id != UNKNOWN else losses.causes_of_classes(*experiment.traces, asked.step)
    if not named and all(described.lines):
        torch, keras = (experiment.near(*each) for each in zip(scopes[-1], described.lines, strict=True))
        named = [
            later.as_later(each, asked.kind, words)
            for each in _named(experiment, asked.kind, {asked.where: (torch, keras)})[asked.where]
        ]
    return named, "; ".join(filter(None, (words, described.words)))


def _told_by_numbers(asked: Parted, traces: tuple[Trace, Trace], is_own: bool) -> list[Cause]:
    """Return the causes that the numbers tell of gradients, buffers, or the updates of an optimizer of the user's."""
    if asked.kind == "buffer":
        return ratios.unbiased(asked, traces)
    if asked.kind == "gradient":
        cause = micro_batches.summed(asked, traces) or ratios.kept(asked, traces)
    else:
        cause = ratios.scheduled(asked, traces)
    cause = cause or (ratios.rescaled(asked, traces) if is_own and asked.kind != "gradient" else None)
    return [cause] if cause else []


def _alike(experiment: Experiment, asked: Parted, examined: Examined) -> list[Cause]:
    """Return the causes at further modules of the kind for which one was found, whose gradients differ as well.

    Only the module itself is asked: with the same gradient of its outputs, one that just follows is the same.
    """
    others = later.alike(asked, examined.unequal, experiment.traces[0].manifest.modules)[:MOST_ALIKE]
    questions = {each.where: scopes[0] for each in others if (scopes := _questions(experiment, each))}
    named = []
    for where, found in _named(experiment, asked.kind, questions).items():
        words = difference(asked.kind, where, *later.both(asked._replace(name=where), experiment.traces))
        named += [later.as_later(cause, asked.kind, words) for cause in found]
    return named


def _questions(experiment: Experiment, asked: Parted) -> list[tuple[Question, Question]]:
    """Return the questions about a difference, the innermost module first and the model last; none if it has none."""
    context = experiment.context
    if context.matching is None or context.mapping is None:
        return []
    return list(later.questions(asked, context.matching, context.mapping, experiment.traces))


def _named(experiment: Experiment, kind: str, questions: Questions) -> dict[str, list[Cause]]:
    """Return the causes that both sides find, by the places of the questions; `kind` is that of the tensors."""
    kinds, named = experiment.traces[0].manifest.modules, {}
    for where, outcomes in experiment.outcomes(questions).items():
        paths = questions[where][0].module, questions[where][1].module
        mine, theirs = (later.likely(outcome, kind) for outcome in outcomes)
        named[where] = causes(where, kinds.get(paths[0], ""), mine, theirs, paths)
    return named


def _described(cause: Cause, asked: Parted, words: str) -> Cause:
    is_asked = cause.id == UNKNOWN and cause.where == asked.where
    return replace(cause, evidence=f"{words}; {cause.evidence}") if is_asked else cause
