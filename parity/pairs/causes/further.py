"""What follows from a difference that an experiment has explained, and what else differs behind it.

What follows from a first difference differs as well, and hides what is done differently there. So the side that
reproduced the other with a changed setting keeps it. With it, it reproduces what only follows; and for each output of
the model that still differs, it is asked what has to be changed besides.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from parity.diagnose.experiment.candidates import IDENTITIES
from parity.diagnose.experiment.causes import causes
from parity.diagnose.experiment.knobs import THEIRS
from parity.diagnose.experiment.operations import FIRST, LEFT_OUT, SECOND
from parity.diagnose.experiment.questions import Asked, Guilty
from parity.diagnose.experiment.statements import KIND as STATEMENT
from parity.results import Cause
from parity.runtime.experiment import Change, Outcome, Question
from parity.trace.keys import MODEL, plain

SIDES: Final = ("torch", "keras")
MISSING: Final = (LEFT_OUT, FIRST, SECOND, *IDENTITIES)  # what is done in place of what one side leaves out
MOST_PASSED: Final = 16  # tensors that differ
MOST: Final = 3  # outputs of the model that are asked about
Questions = dict[str, tuple[Question, Question]]  # of both sides, by what they are asked for
Answers = Callable[[Questions], Mapping[str, tuple[Outcome, Outcome]]]
Name = Callable[[Questions], Mapping[str, list[Cause]]]


def asked_about(asked: Asked, unknown: Mapping[str, Guilty], place: Callable[[str], str]) -> Questions:
    """Return the questions about modules, each asked of the place that `place` returns for it."""
    questions = {where: asked.questions(each._replace(where=place(where))) for where, each in unknown.items()}
    return {where: both_sides for where, both_sides in questions.items() if both_sides}


def besides(asked: Asked, named: Sequence[Cause], answers: Answers) -> list[Cause] | None:
    """Return the causes that show only when those that experiments have found (`named`) are taken away.

    Returns an empty list if every output then is the other side's, and None if nothing tells what else differs.
    """
    if (kept := _kept(named)) is None:
        return None
    side, changes = kept
    outputs = {tensor.name: Guilty(MODEL, tensor) for tensor in asked.outputs[:MOST]}
    questions = asked_about(asked, outputs, lambda name: MODEL)
    outcomes = _outcomes_besides(questions, side, changes, answers)
    behind = [cause for outcome in outcomes.values() for cause in _causes(outcome, side, len(changes))]
    is_all = bool(outcomes) and len(outcomes) == len(asked.outputs) and all(each.same for each in outcomes.values())
    return list({cause.id: cause for cause in reversed(behind)}.values()) or ([] if is_all else None)


def besides_or_whole(
    asked: Asked, unknown: Mapping[str, Guilty], named: Mapping[str, list[Cause]], answers: Answers, name: Name
) -> tuple[list[Cause] | None, dict[str, list[Cause]]]:
    """Return what else differs with the one cause that was found, as `besides` does, and the causes that replace it.

    What one side leaves out at one place it may do at a later one: then a change after which the whole model returns
    what the other side's does takes its place, and nothing else differs.
    """
    (matches,) = filter(None, named.values())
    behind = besides(asked, matches, answers)
    may_be_elsewhere = any(change.after in MISSING or change.kind == STATEMENT for change in matches[0].changes)
    whole = by_model(asked, unknown, name) if behind != [] and may_be_elsewhere else {}
    explained = {where: each for where, each in whole.items() if explains(each)}
    return ([] if explained else behind), explained


def following(asked: Asked, named: Sequence[Cause], unknown: Sequence[Guilty], answers: Answers) -> set[str]:
    """Return the places, of those `unknown`, whose difference only follows from causes found elsewhere (`named`)."""
    questions = asked_about(asked, {each.where: each for each in unknown}, lambda where: MODEL)
    by_side = [[cause for cause in named if cause.changes[0].side == side] for side in SIDES]
    outcomes = [_outcomes_besides(questions, *kept, answers) for matches in by_side if (kept := _kept(matches))]
    return {where for outcome in outcomes for where in outcome if outcome[where].same}


def is_behind(named: Sequence[Cause], questions: tuple[Question, Question], answers: Answers) -> bool:
    """Return whether what both sides are asked about only follows from the causes that experiments have found."""
    if (kept := _kept(named)) is None:
        return False
    return any(outcome.same for outcome in _outcomes_besides({MODEL: questions}, *kept, answers).values())


def confirmed(
    asked: Asked, unknown: Mapping[str, Guilty], named: Mapping[str, list[Cause]], answers: Answers, name: Name
) -> dict[str, list[Cause]]:
    """Return the causes by place, without those of a first call that do not explain the next one.

    The first call of a recurrent cell is given a state of zeros, whatever is made of it. `name` answers questions by
    causes.
    """
    left = dict(named)
    for where, matches in named.items():
        if matches and (again := asked.next_call(unknown[where].first)):
            questions = asked_about(asked, {where: unknown[where]._replace(first=again)}, plain)
            if questions and not is_behind(matches, questions[where], answers):
                del left[where]
                left |= {place: each for place, each in name(questions).items() if each}
    return left


def by_model(asked: Asked, unknown: Mapping[str, Guilty], name: Name) -> Mapping[str, list[Cause]]:
    """Return the causes at the first place with which the whole model returns what the other side's does.

    What its module returns may have been compared with something else, as one with an activation is.
    """
    first = next(iter(unknown), "")
    if not asked.outputs or asked.torch.is_large or not unknown or unknown[first].first is asked.outputs[0]:
        return {}
    return name(asked_about(asked, {first: Guilty(MODEL, asked.outputs[0])}, lambda where: MODEL))


def to_pass(asked: Asked) -> Question | None:
    """Return the question which of the first tensors that differ torch's model can be given; None if none may be.

    So differs what a layer returns at padding, which is masked afterwards: it hides where the models part.
    """
    inner = list(itertools.takewhile(lambda each: not each.name.startswith(MODEL), asked.forward))
    if not (inner and asked.outputs) or inner[0].verdict != "diverged" or asked.torch.is_large:
        return None
    made = (asked.questions(Guilty(plain(each.name), each)) for each in inner[:MOST_PASSED])
    questions = [both_sides[0] for both_sides in made if both_sides]
    return replace(questions[0], passed=[each.tensor for each in questions]) if questions else None


def explains(matches: Sequence[Cause]) -> bool:
    """Return whether what is found is one change, and not that the other side is given another mask."""
    return len(matches) == 1 and all(change.after != THEIRS for change in matches[0].changes)


def _kept(named: Sequence[Cause]) -> tuple[int, list[Change]] | None:
    """Return the side that reproduced the other, and its changes; None if both did, or if these cannot be kept."""
    sides = {SIDES.index(cause.changes[0].side) for cause in named}
    if len(sides) != 1 or any(cause.changes[0].kind == "callable" for cause in named):
        return None
    fields = Change.__struct_fields__  # all of Changed but its side
    return sides.pop(), [Change(**{name: getattr(cause.changes[0], name) for name in fields}) for cause in named]


def _outcomes_besides(questions: Questions, side: int, changes: list[Change], answers: Answers) -> dict[str, Outcome]:
    """Return what a side finds that has to be changed besides these changes, for each question."""
    if not questions:
        return {}
    outcomes = answers(questions)
    given: Questions = {}
    for name, both_sides in questions.items():
        own = replace(both_sides[side], given=changes, settings=outcomes[name][1 - side].settings)
        given[name] = (both_sides[0], own) if side else (own, both_sides[1])
    return {name: outcome[side] for name, outcome in answers(given).items()}


def _causes(outcome: Outcome, side: int, given: int) -> list[Cause]:
    """Return the causes among what a side has found, without the changes that were given to it."""
    found = [replace(each, changes=each.changes[given:]) for each in outcome.found]
    mine, theirs = replace(outcome, found=found), Outcome()
    behind = causes(MODEL, "", *((theirs, mine) if side else (mine, theirs)))
    # Reported is torch's path of the module with the setting; the whole model if it is known on Keras's side alone.
    return [replace(cause, where=(not side and plain(cause.changes[0].path)) or MODEL) for cause in behind]
