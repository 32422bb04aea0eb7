"""The report's entries for causes: id, place, what each side does, and the evidence in words.

Those of causes in the layout (modules, parameters or states that lie on other devices than on the other side) are made
of the lines that tell its differences.
"""

import itertools
import traceback
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import asdict

from parity.config.pair import INTERNAL_ERROR, UNKNOWN
from parity.core.wording import count
from parity.diagnose.explain import Change
from parity.diagnose.topic import Question
from parity.results import Cause, LayoutCheck
from parity.trace import keys

MOMENTUM = "batch_norm.momentum"
COMMON = ("gradient", keys.UPDATE)  # kinds of questions with one answer for all parameters
# Cause id by the aspect of the layout that differs, the most important aspect first.
PLACEMENTS = {
    "replicas": "placement.replicas",
    "compute": "placement.layer",
    "parameters": "placement.parameters",
    "shards": "placement.parameters",
    "backward": "placement.backward",
    "optimizer_state": "placement.optimizer_state",
}
TRANSFERS = "placement.transfers"  # differences in any other aspect
# Word in a layout difference for an event or object that one side lacks: another cause explains that it is absent.
NOWHERE = "nowhere"


def cause(question: Question, change: Change, names: tuple[str, str]) -> Cause:
    """Return the entry for a setting in which the candidate differs from the reference."""
    reference_value, candidate_value = _as_json(change.reference), _as_json(change.candidate)
    evidence = _reproduced(names[1], change)
    if change.cause == MOMENTUM and "keras" in names:  # told as PyTorch has it, the weight of the new value
        own = 1 - (candidate_value if names[1] == "keras" else reference_value)
        evidence += f"; keras's argument, the weight of the old value, is {own:.6g}"
    return entry(change.cause, question.where, names, (reference_value, candidate_value), evidence)


def low_cause(side: str, where: str, change: Change, names: tuple[str, str]) -> Cause:
    """Return the entry for what the low run of one side does and its own high run does not."""
    low, high = _as_json(change.candidate), _as_json(change.reference)
    evidence = _reproduced(f"the low-precision run of {side}", change)
    return entry(change.cause, where, names, tuple(low if name == side else high for name in names), evidence)


def _reproduced(what: str, change: Change) -> str:
    """Return to how many bits something is reproduced with its own setting, and with that of the reference."""
    own, reference = _as_json(change.candidate), _as_json(change.reference)
    bits, before = count(round(change.bits), "bit"), count(round(change.before), "bit")
    return f"recomputed with {change.trait} = {own}, {what} is reproduced to {bits}; with {reference}, to {before}"


UNCOVERED = "no formula in the catalogue covers this tensor"
SUMMARISED = "there is only a summary of this tensor, on which no formula can be tried"


def unknown(where: str, names: tuple[str, str], tried: tuple[str, ...] = (), why: str = UNCOVERED) -> Cause:
    """Return the entry for a tensor whose difference no formula explains: none of those tried, or none for a reason."""
    evidence = f"ruled out: {', '.join(tried)}" if tried else why
    return entry(UNKNOWN, where, names, (None, None), evidence)


def internal_error(where: str, names: tuple[str, str], error: Exception) -> Cause:
    """Return the entry for a diagnosis that failed: the exception, and the line of this program that raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if Path(__file__).parents[1] in Path(frame.filename).parents]
    line = f"{Path(own[-1].filename).name}, line {own[-1].lineno}, in {own[-1].name}"
    message = " ".join(str(error).split())
    evidence = f"{type(error).__name__} in {line}: {message}; this is a mistake in parity, please report it"
    return entry(INTERNAL_ERROR, where, names, (None, None), evidence)


def without_repeats(kind: str, causes: list[Cause]) -> Iterable[Cause]:
    """Return each cause once; of an optimizer or a reduction once for all parameters, whichever showed it first."""
    ignored = {"evidence", "where"} if kind in COMMON else {"evidence"}
    once: dict[tuple[str, ...], Cause] = {}
    for each in causes:
        once.setdefault(tuple(str(value) for key, value in asdict(each).items() if key not in ignored), each)
    return once.values()


def entry(cause: str, where: str, names: Sequence[str], values: Sequence[Any], evidence: str) -> Cause:
    """Return the entry for a cause, with what each of the named sides does."""
    return Cause(id=cause, where=where, **dict(zip(names, values, strict=True)), evidence=evidence)


def _as_json(value: Any) -> Any:
    """Return a setting as a JSON value."""
    return list(value) if isinstance(value, tuple) else value


def layout_causes(layout: LayoutCheck, names: tuple[str, str], is_explained: bool) -> Iterator[Cause]:
    """Yield the causes of the most important aspect in which layouts differ, transfers only if there is no other."""
    lines = [line.split(": ", 2) for line in layout.differences if not (is_explained and NOWHERE in line)]
    for aspect, cause in PLACEMENTS.items():
        if of_aspect := [line for line in lines if line[0] == aspect]:
            yield from (_layout_cause(cause, line[1], line[-1], names) for line in of_aspect)
            return
    if lines and not is_explained:
        yield _layout_cause(TRANSFERS, lines[0][1], lines[0][-1], names)


def _layout_cause(cause: str, where: str, difference: str, names: tuple[str, str]) -> Cause:
    """Return the report's entry for one line of the layout's differences."""
    parts = itertools.zip_longest(names, difference.rsplit(", ", 1))
    values = tuple(part and part.strip().removeprefix(f"{name} ") for name, part in parts)
    return entry(cause, where, names, values, difference)
