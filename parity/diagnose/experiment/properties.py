"""Properties of a module that its responses to the probes show, each in words.

Each property is a function of the responses that returns what the module does, as the end of a sentence that begins
with its name; "" where the responses are no evidence.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, NamedTuple

import numpy as np

from parity.core.arrays import Array
from parity.diagnose.experiment import probes
from parity.diagnose.experiment.probes import Responses

NEAR: Final = 2.0**-34  # of the largest value: responses that are nearer are equal
CHANGED: Final = 2.0**-42  # the same, where nothing but rounding may differ
MIXES: Final = "mixes elements"
NOT_LINEAR: Final = "is not linear"


class Property(NamedTuple):
    """A property in words, and whether what both sides have of it helps to see what they do."""

    words: Callable[[Responses], str]
    context: bool = False


def near(one: Array | None, other: Array | None, bound: float = NEAR, scale: float = 0.0) -> bool:
    """Return whether two responses are equal to rounding; `scale` is the magnitude of what they were computed from."""
    if one is None or other is None or one.shape != other.shape:
        return False
    finite = np.isfinite(one)
    if not np.array_equal(finite, np.isfinite(other)):
        return False
    one, other = np.where(finite, one, 0.0), np.where(finite, other, 0.0)
    largest = max(np.abs(one).max(initial=0.0), np.abs(other).max(initial=0.0), scale)
    return bool(np.abs(one - other).max(initial=0.0) <= bound * largest)


def properties(inputs: list[Array]) -> Iterator[Property]:
    """Yield the properties to ask of a module with these inputs."""
    yield Property(_repeats)
    yield Property(alone_words, context=True)
    yield Property(_linear, context=True)
    yield Property(_doubled)
    yield Property(_raised)
    if (number := probes.varied(inputs)) is not None:
        for axis, length in enumerate(inputs[number].shape):
            if length > 1:
                yield Property(partial(_along, axis=axis), context=True)
                yield Property(partial(_position, axis=axis))
    for number in probes.others(inputs):
        yield Property(partial(_uses, number=number))


def is_alone(table: Responses) -> bool:
    """Return whether a changed element of the input changes that element of the output alone."""
    number = probes.varied(table.inputs)
    given = table.outputs.get("given")
    if number is None or given is None or given.shape != table.inputs[number].shape or given.size < 2:
        return False
    return all(
        _changes(table, f"element {index}") == {element} for index, element in enumerate(probes.elements(given.size))
    )


def alone_words(table: Responses) -> str:
    """Return whether the module acts on each element alone."""
    if not {"given", "element 0"} <= table.outputs.keys():
        return ""
    if not is_alone(table):
        return MIXES
    levels = [table.outputs.get(f"level {level}") for level in probes.LEVELS]
    same = all(level is not None and near(level, np.full_like(level, level.flat[0])) for level in levels)
    return "acts on each element alone" + ("" if same else ", by a curve that is not the same for all")


def _changes(table: Responses, probe: str) -> set[int] | None:
    """Return which elements of the output a probe changes; None if it has another shape or was refused."""
    given, output = table.outputs.get("given"), table.outputs.get(probe)
    if given is None or output is None or given.shape != output.shape:
        return None
    with np.errstate(invalid="ignore"):
        changed = np.abs(output - given) > CHANGED * np.abs(given[np.isfinite(given)]).max(initial=0.0)
    return set(map(int, np.flatnonzero(changed)))


def _repeats(table: Responses) -> str:
    given, again, last = (table.outputs.get(name) for name in ("given", "again", "last"))
    if given is None or again is None or last is None:
        return ""
    if not near(given, again):
        return "gives another output when it is called again with the same input"
    return "gives the same output each time" if near(given, last) else "keeps something from earlier calls"


def _linear(table: Responses) -> str:
    given, zero, other, both, double = (table.outputs.get(name) for name in ("given", "zero", "other", "sum", "double"))
    if given is None or zero is None or other is None or both is None or double is None:
        return ""
    if not (given.shape == zero.shape == other.shape == both.shape == double.shape) or near(given, zero):
        return ""
    if not (near(both + zero, given + other) and near(double + zero, 2.0 * given)):
        return NOT_LINEAR
    return "is linear" if not zero.any() else "is linear with a constant added"


def _doubled(table: Responses) -> str:
    given, double = table.outputs.get("given"), table.outputs.get("double")
    if given is None or double is None or given.shape != double.shape or not given.any():
        return ""
    if near(double, given):
        return "gives the same output when its input is doubled"
    return "doubles its output when its input is doubled" if near(double, 2.0 * given) else _NEITHER


_NEITHER: Final = "neither keeps nor doubles its output when its input is doubled"


def _raised(table: Responses) -> str:
    given, raised = table.outputs.get("given"), table.outputs.get("raised")
    if given is None or raised is None or given.shape != raised.shape:
        return ""
    if near(raised, given):
        return "gives the same output when 1 is added to its input"
    if near(raised, given + 1.0):
        return "gives 1 more when 1 is added to its input"
    return "gives another output when 1 is added to its input"


def seen(table: Responses, axis: int) -> tuple[int, int, int] | None:
    """Return the first and last output that a changed position of an axis changes, and the axis's length.

    None where the output does not have the input's length along the axis.
    """
    number, given = probes.varied(table.inputs), table.outputs.get("given")
    changed = _changes(table, f"part {axis}")
    if number is None or given is None or not changed:
        return None
    x = table.inputs[number]
    if given.ndim != x.ndim or given.shape[axis] != x.shape[axis]:
        return None
    at = np.unravel_index(sorted(changed), given.shape)[axis]
    return int(at.min()), int(at.max()), x.shape[axis]


def _along(table: Responses, axis: int) -> str:
    """Return which positions along an axis (of the batch for axis 0) an output depends on."""
    if (range_ := seen(table, axis)) is None:
        return ""
    what = "row of the batch" if axis == 0 else f"position along axis {axis}"
    first, last, length = range_
    at = probes.middle(length)
    if first == last == at:
        return f"looks at one {what} at a time"
    if (first, last) == (0, length - 1):
        return f"looks at more than one {what}"
    if first == at and last == length - 1:
        return f"looks at a {what} and those before it"
    if first == 0 and last == at:
        return f"looks at a {what} and those after it"
    return f"looks, for each {what}, from {_offset(at - last)} to {_offset(at - first)}"


def _offset(steps: int) -> str:
    return f"{abs(steps)} {'before' if steps < 0 else 'after'}" if steps else "itself"


def _position(table: Responses, axis: int) -> str:
    """Return whether positions along an axis are treated alike, where each sees itself alone or all."""
    given, reversed_ = table.outputs.get("given"), table.outputs.get(f"reversed {axis}")
    range_ = seen(table, axis)
    if given is None or reversed_ is None or range_ is None or given.shape != reversed_.shape:
        return ""
    first, last, length = range_
    if not (first == last or (first, last) == (0, length - 1)):
        return ""
    what = "row of the batch" if axis == 0 else f"position along axis {axis}"
    alike = near(np.flip(given, axis), reversed_)
    return f"treats each {what} alike" if alike else f"depends on which {what} it is"


def _uses(table: Responses, number: int) -> str:
    """Return whether the output depends on an input of integers or a mask."""
    given, flipped = table.outputs.get("given"), table.outputs.get(f"flipped {number}")
    if given is None or flipped is None:
        return ""
    what = "mask" if table.inputs[number].dtype == np.bool_ else "integers"
    return f"{'ignores' if near(given, flipped) else 'uses'} its input {number} ({what})"
