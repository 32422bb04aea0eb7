"""What else differs behind a difference that an experiment has explained.

What follows from a first difference differs as well, and hides what is done differently there. So the side that
reproduced the other with a changed setting keeps it, and is asked what has to be changed besides, for each output of
the model that differs.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from parity.core.names import MODEL
from parity.diagnose.entries import Cause
from parity.diagnose.experiment.causes import causes
from parity.diagnose.experiment.questions import Asked, Guilty, is_forward
from parity.diagnose.place import plain
from parity.trace.experiment import Change, Outcome, Question
from parity.verdict.traces import Unequal

SIDES: Final = ("torch", "keras")
MOST: Final = 3  # outputs of the model that are asked about
Answers = Callable[[dict[str, tuple[Question, Question]]], Mapping[str, tuple[Outcome, Outcome]]]


def further(
    asked: Asked, named: Sequence[Cause], unequal: Sequence[Unequal], known: Collection[str], answers: Answers
) -> list[Cause]:
    """Return the causes that show only when those that experiments have found are taken away.

    Args:
        asked: makes questions.
        named: the causes at one module, which experiments have found.
        unequal: all tensors that differ.
        known: the ids of all causes; none of these is told again.
        answers: lets both sides answer questions.
    """
    sides = {SIDES.index(cause["changes"][0]["side"]) for cause in named}
    if len(sides) != 1 or any(cause["changes"][0]["kind"] == "callable" for cause in named):
        return []
    (side,), changes = sides, [_change(cause["changes"][0]) for cause in named]
    outputs = [tensor for tensor in unequal if is_forward(tensor) and tensor.name.startswith(MODEL)][:MOST]
    made = {tensor.name: asked.questions(Guilty(MODEL, tensor)) for tensor in outputs}
    questions = {name: both_sides for name, both_sides in made.items() if both_sides}
    outcomes = _besides(questions, side, changes, answers) if questions else []
    behind = [cause for outcome in outcomes for cause in _causes(outcome, side, len(changes))]
    return list({cause["id"]: cause for cause in reversed(behind) if cause["id"] not in known}.values())


def _besides(
    questions: dict[str, tuple[Question, Question]], side: int, changes: list[Change], answers: Answers
) -> list[Outcome]:
    """Return what a side finds that has to be changed besides these changes, for each question."""
    told = answers(questions)
    given: dict[str, tuple[Question, Question]] = {}
    for name, (torch, keras) in questions.items():
        settings = told[name][1 - side].settings
        if side == 0:
            given[name] = replace(torch, given=changes, settings=settings), keras
        else:
            given[name] = torch, replace(keras, given=changes, settings=settings)
    return [outcome[side] for outcome in answers(given).values()]


def _causes(outcome: Outcome, side: int, given: int) -> list[Cause]:
    """Return the causes among what a side has found, without the changes that were given to it."""
    found = [replace(each, changes=each.changes[given:]) for each in outcome.found]
    mine, theirs = replace(outcome, found=found), Outcome()
    behind = causes(MODEL, "", *((theirs, mine) if side else (mine, theirs)))
    return [{**cause, "where": _place(side, cause)} for cause in behind]


def _change(entry: Mapping[str, object]) -> Change:
    return msgspec.convert({name: value for name, value in entry.items() if name != "side"}, Change)


def _place(side: int, cause: Cause) -> str:
    """Return torch's path of the module with the setting; the whole model if it is known on Keras's side alone."""
    path = plain(cause["changes"][0]["path"])
    return path if side == 0 and path else MODEL
