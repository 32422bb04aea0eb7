"""Where both sides' calls of a module part, where no setting explains it: the ops, and the lines of the user's code.

It becomes the evidence of causes in the report.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from msgspec.structs import replace

from parity.config.pair import UNKNOWN
from parity.core.arrays import Array
from parity.core.errors import TraceError
from parity.diagnose.experiment import ops
from parity.diagnose.experiment.first_difference import (
    FLOAT32,
    Parting,
    first_difference,
    matched,
    places,
    rounding,
    sentence,
)
from parity.diagnose.experiment.operands import named
from parity.diagnose.experiment.ops import Recording
from parity.diagnose.experiment.taken import Named, ordered
from parity.results import Cause

OP_PRECISION: Final = "op.precision"


class Description(NamedTuple):
    """What both sides do differently."""

    words: str  # it in words
    # The user's lines at which torch's and Keras's calls part, and those that make what goes in there.
    lines: tuple[list[str], list[str]] = ([], [])
    places: str = ""  # in words, with which ops the calls part, and on which lines those stand
    line: str = ""  # the user's line of Keras's at which the calls part
    # The side whose op computes in float32, whatever it is given, if that is all that parts them; or "".
    rounds: str = ""
    named: Named | None = None  # the cause, if the ops tell it


def description(torch: Path, keras: Path, weights: Iterable[Array]) -> Description:
    """Return a description of what both sides wrote, none if one could not be called again; `weights` are torch's."""
    mine, theirs = _recording(torch), _recording(keras)
    if not mine or not theirs:
        return Description("")
    if (difference := first_difference(mine, theirs)) is None:
        cause = ordered(*matched(mine, theirs), weights)
        return Description(cause.words, named=cause) if cause else Description("")
    return Description(
        words=sentence(difference),
        lines=(_lines(difference.torch), _lines(difference.keras)),
        places=places(difference),
        line=difference.keras.line if difference.keras else difference.graphs[1].end,
        rounds=rounding(difference) if difference.apart is not None and difference.apart <= FLOAT32 else "",
        named=named(difference, weights),
    )


def _lines(parting: Parting | None) -> list[str]:
    """Return the lines of an op and of what makes its inputs."""
    return [line for line in dict.fromkeys((parting.line, *parting.sources)) if line] if parting else []


def _recording(folder: Path) -> Recording | None:
    try:
        return ops.read(folder)
    except TraceError:  # this side has written none
        return None


def with_descriptions(entries: Sequence[Cause], described: Mapping[str, Description]) -> list[Cause]:
    """Return the report's causes with a description of where the calls part as the evidence of unknown ones.

    If an op of one side computes in float32 there, or the ops take other constants, that is the cause. Those that are
    then the same at the same place are told once.
    """
    told: list[Cause] = []
    for entry in entries:
        description = described.get(entry.where) if entry.id == UNKNOWN else None
        each = _with_description(entry, description) if description and description.words else entry
        if each is entry or each not in told:
            told.append(each)
    return told


def _with_description(entry: Cause, description: Description) -> Cause:
    if cause := description.named:
        return replace(entry, id=cause.id, torch=cause.torch, keras=cause.keras, evidence=cause.words)
    described = replace(entry, evidence=description.words)
    sides = {"torch": "float64", "keras": "float64", description.rounds: "float32"}
    return replace(described, id=OP_PRECISION, **sides) if description.rounds else described


def is_without_line(cause: Cause) -> bool:
    """Return whether a cause has a name and tells nothing of Keras's code: it is a formula, or a change of torch's."""
    return cause.id not in (UNKNOWN, OP_PRECISION) and all(change.side == "torch" for change in cause.changes)


def with_lines(entries: Sequence[Cause], described: Mapping[str, Description]) -> list[Cause]:
    """Return the report's causes, those without a line of Keras's code with the place at which the calls part.

    `source` is the line at which they do; `lines` are also those that make what goes in there.
    """

    def with_line(entry: Cause) -> Cause:
        told = described.get(entry.where) if is_without_line(entry) else None
        if not told or not told.line:
            return entry
        lines = list(dict.fromkeys([told.line, *told.lines[1]]))
        evidence = entry.evidence if told.places in entry.evidence else f"{entry.evidence}; in the code: {told.places}"
        return replace(entry, evidence=evidence, source=told.line, lines=lines)

    return list(map(with_line, entries))


def with_causes(entries: Sequence[Cause], where: str, named: Sequence[Cause]) -> list[Cause]:
    """Return the report's causes with those of a module in place of the unknown one there.

    A change that is a cause already, as it explains a module before this one, is not told again; nor is what a formula
    has found there.
    """
    told = [entry.changes for entry in entries if entry.changes]
    by_formula = {(entry.id, entry.where) for entry in entries if not entry.changes}
    named = [cause for cause in named if (cause.id, cause.where) not in by_formula]
    result: list[Cause] = []
    for entry in entries:
        if entry.id == UNKNOWN and entry.where == where:
            result += [cause for cause in named if cause.changes not in told]
            told += [cause.changes for cause in named]
        else:
            result.append(entry)
    return result


def each_once(found: Sequence[Cause]) -> list[Cause]:
    """Return the causes without those that are the very change of an earlier one, found again from a later module."""
    changes = [cause.changes for cause in found]
    return [
        cause for number, cause in enumerate(found) if not changes[number] or changes.index(changes[number]) == number
    ]
