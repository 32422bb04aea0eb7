"""Name by experiment what differs after the forward pass of a pair: the loss, a gradient, a buffer, an update."""

import numpy as np

from parity.config.pair import UNKNOWN, Pair
from parity.core.errors import BackendError
from parity.diagnose import own_optimizers
from parity.diagnose.diagnosis import Examined
from parity.diagnose.entries import Cause
from parity.diagnose.experiment import later
from parity.diagnose.experiment.causes import causes
from parity.diagnose.experiment.later import Parted
from parity.diagnose.experiment.later_words import difference
from parity.pairs.experiment import MOST_ALIKE, Experiment
from parity.pairs.one_sided import has_own_optimizer
from parity.trace import keys
from parity.trace.experiment import Question


def name_causes(experiment: Experiment, examined: Examined) -> None:
    """Replace the unknown causes of what comes after a forward pass, or describe the difference in words."""
    result, pair = examined.result, experiment.file.case.model
    assert isinstance(pair, Pair)
    for asked in later.parted(result, examined.unequal):
        with np.errstate(all="ignore"):  # the tensors may hold any numbers
            words = difference(asked.kind, asked.name, *later.both(asked, experiment.traces))
            is_own = asked.kind == keys.UPDATE and has_own_optimizer(pair)
            moved = later.moved(asked, examined.unequal)
            named, followers = own_optimizers.explained(*experiment.traces, moved) if is_own else ([], moved)
            followers = followers if named else moved
            alike: list[Cause] = []
            try:
                found = named or _found(experiment, asked, examined)
                named = named or [later.as_later(cause, asked.kind, words) for cause in found]
                words = words if named else _with_lines(experiment, asked, words)
                alike = _alike(experiment, asked, examined) if found and asked.kind == "gradient" else []
            except BackendError as error:
                reason = f"what comes after the forward pass could not be computed again: {error}"
                result.not_compared.append(reason)
        if named:
            result.causes = later.with_named(result.causes, asked, named, followers)
            result.causes += alike
        if words:
            result.causes = [_described(cause, asked, words) for cause in result.causes]


def _found(experiment: Experiment, asked: Parted, examined: Examined) -> list[Cause]:
    """Return the causes that the forward pass has, or the module of a difference, or else the modules around it."""
    context, kinds = experiment.context, experiment.traces[0].manifest.modules
    if context.matching is None or context.mapping is None:
        return []
    questions = list(later.questions(asked, context.matching, context.mapping, experiment.traces))
    if asked.step == 0 and (found := experiment.behind(examined, questions[-1])):
        return found
    for torch, keras in questions:
        both: dict[str, tuple[Question, Question]] = {asked.where: (torch, keras)}
        for outcomes in experiment.outcomes(both).values():
            paths = torch.module, keras.module
            likely = [later.likely(outcome, asked.kind) for outcome in outcomes]
            if found := causes(asked.where, kinds.get(torch.module, ""), likely[0], likely[1], paths):
                return found
    return []


def _with_lines(experiment: Experiment, asked: Parted, words: str) -> str:
    """Return a description of a loss together with the ops and lines at which both sides' computations of it part."""
    context = experiment.context
    if asked.kind != "loss" or context.matching is None or context.mapping is None:
        return words
    *_, of_model = later.questions(asked, context.matching, context.mapping, experiment.traces)
    told = experiment.described({asked.where: of_model})[asked.where]
    return "; ".join(filter(None, (words, told.words)))


def _alike(experiment: Experiment, asked: Parted, examined: Examined) -> list[Cause]:
    """Return the causes at further modules of the kind for which one was found, whose gradients differ as well.

    Only the module itself is asked: with the same gradient of its outputs, one that just follows is the same.
    """
    context, kinds = experiment.context, experiment.traces[0].manifest.modules
    if context.matching is None or context.mapping is None:
        return []
    questions = {}
    for other in later.alike(asked, examined.unequal, kinds)[:MOST_ALIKE]:
        questions[other.where] = next(later.questions(other, context.matching, context.mapping, experiment.traces))
    named = []
    for where, outcomes in experiment.outcomes(questions).items():
        torch, keras = questions[where]
        likely = [later.likely(outcome, asked.kind) for outcome in outcomes]
        found = causes(where, kinds.get(torch.module, ""), likely[0], likely[1], (torch.module, keras.module))
        words = difference(asked.kind, where, *later.both(asked._replace(name=where), experiment.traces))
        named += [later.as_later(cause, asked.kind, words) for cause in found]
    return named


def _described(cause: Cause, asked: Parted, words: str) -> Cause:
    is_asked = cause["id"] == UNKNOWN and cause["where"] == asked.where
    return {**cause, "evidence": f"{words}; {cause['evidence']}"} if is_asked else cause
