"""Whether an optimizer's formula, with the settings that explain some parameters, makes another's updates too."""

from collections.abc import Iterable

from parity.diagnose.explain import Explained
from parity.diagnose.formula import NEEDED, Settings, bits, residuals
from parity.diagnose.questions import Question, Sides
from parity.trace import keys

Both = tuple[Settings, Settings]
FROZEN = "frozen"  # the setting that is of one parameter, where all others are of the optimizer


class Replayed:
    """The settings of both sides under which the parameters that were asked for are reproduced."""

    def __init__(self, sides: Sides, answers: Iterable[tuple[Question, Explained]]) -> None:
        self._sides = sides
        self._known = [
            (ask, answer.settings) for ask, answer in answers if ask.kind == keys.UPDATE and answer.settings is not None
        ]

    def reproduces(self, name: str, replica: int, frozen: bool) -> bool:
        """Whether each side makes a parameter's updates of its own gradients under some of these settings.

        `frozen`: also if these say that one side leaves the parameter as it is; else only one without a gradient.
        """
        both = [side.updates(name, replica) for side in self._sides[:2]]
        if both[0] is None or both[1] is None:
            return False
        mine, theirs = both[0], both[1]
        frozen = frozen or not any(gradient.any() for one in (mine, theirs) for gradient in one.gradients)
        return any(
            (frozen or settings[0][FROZEN] == settings[1][FROZEN])
            and explains(ask._replace(reference=mine, candidate=theirs), settings)
            for ask, settings in self._known
        )


def explains(question: Question, settings: Both) -> bool:
    """Whether settings of both sides reproduce what a question is about."""
    return all(
        bits(side.seen, residuals(question.formula, side, one)) >= NEEDED
        for side, one in zip((question.reference, question.candidate), settings, strict=True)
    )
