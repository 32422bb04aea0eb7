"""What both sides do differently in words, where no setting explains it: the op at which they part, and behaviour."""

from pathlib import Path
from typing import NamedTuple

from parity.core.errors import TraceError
from parity.diagnose.experiment import ops, probes
from parity.diagnose.experiment.behaviour import describe
from parity.diagnose.experiment.first_difference import Parting, first_difference, sentence
from parity.diagnose.experiment.ops import Recording
from parity.diagnose.experiment.probes import Responses


class Description(NamedTuple):
    """What both sides do differently: in words, and the user's lines at which torch's and Keras's calls part."""

    words: str
    lines: tuple[list[str], list[str]]


def description(torch: Path, keras: Path) -> Description:
    """Return a description from what both sides have written; no words if a side could not be called again."""
    recordings, answers = (_recording(torch), _recording(keras)), (_responses(torch), _responses(keras))
    parts: list[str] = []
    lines: tuple[list[str], list[str]] = [], []
    if recordings[0] and recordings[1] and (difference := first_difference(recordings[0], recordings[1])):
        parts.append(sentence(difference))
        lines = _lines(difference.torch), _lines(difference.keras)
    if answers[0] and answers[1]:
        parts.append(describe(answers[0], answers[1]))
    return Description("; ".join(parts), lines)


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
