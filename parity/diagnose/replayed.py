"""Check whether the optimizer settings that explain some parameters explain the updates of another one."""

from collections.abc import Iterable

from parity.diagnose.explain import Explained
from parity.diagnose.formula import NEEDED, Settings, bits, residuals
from parity.diagnose.question import Question
from parity.diagnose.sides import Sides
from parity.diagnose.updates import observe
from parity.trace import keys

Both = tuple[Settings, Settings]
FROZEN = "frozen"  # the one setting that belongs to a single parameter; all others belong to the optimizer


class Replayed:
    """The settings of both sides under which the updates of the examined parameters are reproduced."""

    def __init__(self, sides: Sides, answers: Iterable[tuple[Question, Explained]]) -> None:
        self._sides = sides
        self._known = [
            (ask, answer.settings) for ask, answer in answers if ask.kind == keys.UPDATE and answer.settings is not None
        ]

    def reproduces(self, name: str, replica: int, frozen: bool) -> bool:
        """Return whether each side's updates of a parameter follow from its own gradients under some of these settings.

        Args:
            name: the parameter.
            replica: the replica that recorded it.
            frozen: whether settings also count in which one side leaves the parameter as it is. Otherwise these count
                only for a parameter that has no gradient on either side.
        """
        both = [observe(side, name, replica) for side in self._sides.both]
        if both[0] is None or both[1] is None:
            return False
        reference, candidate = both[0], both[1]
        frozen = frozen or not any(
            gradient.any() for updates in (reference, candidate) for gradient in updates.gradients
        )
        return any(
            (frozen or settings[0][FROZEN] == settings[1][FROZEN])
            and explains(ask._replace(reference=reference, candidate=candidate), settings)
            for ask, settings in self._known
        )


def explains(question: Question, settings: Both) -> bool:
    """Return whether a pair of settings, one for each side, reproduces what a question is about."""
    return all(
        bits(observation.seen, residuals(question.formula, observation, side_settings)) >= NEEDED
        for observation, side_settings in zip((question.reference, question.candidate), settings, strict=True)
    )
