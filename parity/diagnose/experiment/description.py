"""What both sides do differently in words, where no setting explains it: the op at which they part, and behaviour."""

from pathlib import Path

from parity.core.errors import TraceError
from parity.diagnose.experiment import ops, probes
from parity.diagnose.experiment.behaviour import describe
from parity.diagnose.experiment.first_difference import first_difference, sentence
from parity.diagnose.experiment.ops import Recording
from parity.diagnose.experiment.probes import Responses


def description(torch: Path, keras: Path) -> str:
    """Return a description from what both sides have written; "" if a side could not be called again."""
    recordings, answers = (_recording(torch), _recording(keras)), (_responses(torch), _responses(keras))
    parts = []
    if recordings[0] and recordings[1] and (difference := first_difference(recordings[0], recordings[1])):
        parts.append(sentence(difference))
    if answers[0] and answers[1]:
        parts.append(describe(answers[0], answers[1]))
    return "; ".join(parts)


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
