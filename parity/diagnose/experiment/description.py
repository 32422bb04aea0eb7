"""What both sides do differently in words, where no setting explains it: the op at which they part, and behaviour."""

from pathlib import Path
from typing import NamedTuple

from parity.core.errors import TraceError
from parity.diagnose.experiment import ops, probes
from parity.diagnose.experiment.behaviour import describe
from parity.diagnose.experiment.first_difference import Parting, first_difference, places, sentence
from parity.diagnose.experiment.ops import Recording
from parity.diagnose.experiment.probes import Responses


class Description(NamedTuple):
    """What both sides do differently.

    Attributes:
        words: it in words.
        lines: the user's lines at which torch's and Keras's calls part, and those that make what goes in there.
        places: in words, with which ops the calls part, and on which lines those stand.
        line: the user's line of Keras's at which the calls part.
    """

    words: str
    lines: tuple[list[str], list[str]] = ([], [])
    places: str = ""
    line: str = ""


def description(torch: Path, keras: Path) -> Description:
    """Return a description from what both sides have written; no words if a side could not be called again."""
    mine, theirs = _recording(torch), _recording(keras)
    difference = first_difference(mine, theirs) if mine and theirs else None
    answers = _responses(torch), _responses(keras)
    behaviour = [describe(answers[0], answers[1])] if answers[0] and answers[1] else []
    if difference is None:
        return Description("; ".join(behaviour))
    return Description(
        words="; ".join([sentence(difference), *behaviour]),
        lines=(_lines(difference.torch), _lines(difference.keras)),
        places=places(difference),
        line=difference.keras.line if difference.keras else difference.ends[1],
    )


def _lines(parting: Parting | None) -> list[str]:
    """Return the lines of an op and of what makes its inputs."""
    return [line for line in dict.fromkeys((parting.line, *parting.sources)) if line] if parting else []


def _recording(folder: Path) -> Recording | None:
    try:
        return ops.read(folder)
    except TraceError:  # this side has written none
        return None


def _responses(folder: Path) -> Responses | None:
    try:
        return probes.read(folder)
    except TraceError:
        return None
