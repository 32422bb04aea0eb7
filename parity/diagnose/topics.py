"""All topics of the diagnosis, in the order in which things happen in a step.

Each module, loss, reduction and optimizer is recomputed from its own recorded inputs, so that a fault does not hide
the next one.
"""

from collections.abc import Iterator
from typing import Final

from parity.diagnose import (
    forward,
    gradients,
    initial_parameters,
    inputs,
    losses,
    optimizers,
    reductions,
    samples,
)
from parity.diagnose.question import Question, Topic
from parity.diagnose.sides import Sides

TOPICS: Final[tuple[Topic, ...]] = (
    initial_parameters.questions,
    samples.questions,
    inputs.questions,
    forward.questions,
    losses.questions,
    reductions.questions,
    gradients.questions,
    optimizers.questions,
)


def questions(sides: Sides) -> Iterator[Question]:
    """Yield all questions for which both sides have recorded what is needed."""
    for topic in TOPICS:
        for question in topic(sides):
            if question.reference is not None and question.candidate is not None:
                yield question
