"""Where both sides' calls of a module part, where no setting explains it: the ops, and the lines of the user's code."""

from pathlib import Path
from typing import NamedTuple

from parity.core.errors import TraceError
from parity.diagnose.experiment import ops
from parity.diagnose.experiment.first_difference import (
    FLOAT32,
    Difference,
    Parting,
    first_difference,
    places,
    rounding,
    sentence,
)
from parity.diagnose.experiment.ops import Recording


class Description(NamedTuple):
    """What both sides do differently.

    Attributes:
        words: it in words.
        lines: the user's lines at which torch's and Keras's calls part, and those that make what goes in there.
        places: in words, with which ops the calls part, and on which lines those stand.
        line: the user's line of Keras's at which the calls part.
        rounds: the side whose op computes in float32, whatever it is given, if that is all that parts them; or "".
    """

    words: str
    lines: tuple[list[str], list[str]] = ([], [])
    places: str = ""
    line: str = ""
    rounds: str = ""


def description(torch: Path, keras: Path) -> Description:
    """Return a description from what both sides have written; no words if a side could not be called again."""
    mine, theirs = _recording(torch), _recording(keras)
    difference = first_difference(mine, theirs) if mine and theirs else None
    if difference is None:
        return Description("")
    return Description(
        words=sentence(difference),
        lines=(_lines(difference.torch), _lines(difference.keras)),
        places=places(difference),
        line=difference.keras.line if difference.keras else difference.ends[1],
        rounds=_rounding(difference),
    )


def _rounding(difference: Difference) -> str:
    is_small = difference.apart is not None and difference.apart <= FLOAT32
    return rounding(difference) if is_small else ""


def _lines(parting: Parting | None) -> list[str]:
    """Return the lines of an op and of what makes its inputs."""
    return [line for line in dict.fromkeys((parting.line, *parting.sources)) if line] if parting else []


def _recording(folder: Path) -> Recording | None:
    try:
        return ops.read(folder)
    except TraceError:  # this side has written none
        return None
