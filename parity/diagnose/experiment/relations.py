"""Relations between the outputs of two modules that hold for all probes: a factor, a constant, another order."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

import numpy as np

from parity.core.arrays import Array
from parity.diagnose.experiment.curve_words import number
from parity.diagnose.experiment.probes import Responses
from parity.diagnose.experiment.properties import near

FEWEST: Final = 3  # probes with outputs of their own that a relation has to hold for
FARTHEST: Final = 3  # positions by which an output may be moved
WIDEST: Final = 256  # elements along the last axis that a reordering is looked for in

Pairs = list[tuple[Array, Array]]


def relation(torch: Responses, keras: Responses) -> str:
    """Return how keras's output is made of torch's, whatever the input; "" if no simple relation holds."""
    names = [name for name in torch.outputs if name in keras.outputs and name not in ("again", "last")]
    pairs = [(torch.outputs[name], keras.outputs[name]) for name in names]
    if not pairs or any(one.shape != other.shape for one, other in pairs) or _same(pairs) or _few(pairs):
        return ""
    return next((words for words in _relations(pairs) if words), "") or _transposed(torch, keras)


def _relations(pairs: Pairs) -> Iterator[str]:
    yield _scale(pairs)
    yield _constant(pairs)
    yield from (words for words, change in _orders(pairs[0][0]) if all(near(change(y), z) for y, z in pairs))
    yield from (_moved(pairs, axis, steps) for axis, steps in _steps(pairs[0][0]))
    yield _reordered(pairs)


def _same(pairs: Pairs) -> bool:
    return all(near(one, other) for one, other in pairs)


def _few(pairs: Pairs) -> bool:
    """Return whether too few probes have an output of their own."""
    return len({one.tobytes() for one, _ in pairs}) < FEWEST


def _scale(pairs: Pairs) -> str:
    one, other = max(pairs, key=lambda pair: float(np.abs(pair[0][np.isfinite(pair[0])]).max(initial=0.0)))
    finite = np.isfinite(one) & np.isfinite(other)
    if not one[finite].any():
        return ""
    factor = float(np.vdot(one[finite], other[finite]) / np.vdot(one[finite], one[finite]))
    if not all(near(factor * left, right) for left, right in pairs):
        return ""
    return f"keras's output is {number(factor)} times torch's, whatever the input"


def _constant(pairs: Pairs) -> str:
    with np.errstate(invalid="ignore"):
        constant = pairs[0][1] - pairs[0][0]
    largest = float(np.abs(constant).max())
    if not np.isfinite(largest) or not all(near(one + constant, other, scale=largest) for one, other in pairs):
        return ""
    if np.ptp(constant) <= 1e-9 * largest:
        return f"keras's output is torch's plus {number(float(constant.flat[0]))}, whatever the input"
    if (side := _without(pairs)) is not None:
        return f"{side} adds the same numbers whatever the input, as a bias"
    return "the outputs differ by the same numbers whatever the input, as by a bias"


def _without(pairs: Pairs) -> str | None:
    """Return which side adds a constant where the other gives zeros for some probe, as for an input of zeros."""
    for one, other in pairs:
        if one.any() != other.any():
            return "torch" if one.any() else "keras"
    return None


def _transposed(torch: Responses, keras: Responses) -> str:
    """Return whether, along the last axis, one side multiplies by the other's matrix transposed."""
    one, other = _matrix(torch), _matrix(keras)
    if one is None or other is None or one.shape != other.T.shape or near(one, other) or not near(one, other.T):
        return ""
    return "keras multiplies the last axis by torch's matrix transposed"


def _matrix(table: Responses) -> Array | None:
    """Return what the unit vectors along the last axis become where they stand; None if they were not asked."""
    units = [output for name, output in table.outputs.items() if name.startswith("unit ")]
    zero = table.outputs.get("zero")
    if not units or zero is None or not zero.ndim or any(unit.shape != zero.shape for unit in units):
        return None
    return np.stack([(unit - zero).reshape(-1, zero.shape[-1])[0] for unit in units])


def _orders(output: Array) -> Iterator[tuple[str, Callable[[Array], Array]]]:
    for axis, length in enumerate(output.shape):
        if length > 1:
            yield f"keras's output is torch's reversed along axis {axis}", partial(np.flip, axis=axis)
    for first in range(output.ndim):
        for second in range(first + 1, output.ndim):
            if output.shape[first] == output.shape[second] > 1:
                yield (
                    f"keras's output is torch's with axes {first} and {second} exchanged",
                    partial(np.swapaxes, axis1=first, axis2=second),
                )


def _steps(output: Array) -> Iterator[tuple[int, int]]:
    for axis, length in enumerate(output.shape):
        for steps in range(1, min(FARTHEST, length - 2) + 1):
            yield from ((axis, steps), (axis, -steps))


def _moved(pairs: Pairs, axis: int, steps: int) -> str:
    """Return whether outputs are the same but for a step along an axis; what is moved in at the end is left out."""

    def part(array: Array, start: int) -> Array:
        length = array.shape[axis] - abs(steps)
        return np.take(array, range(start, start + length), axis)

    if not all(near(part(one, max(-steps, 0)), part(other, max(steps, 0))) for one, other in pairs):
        return ""
    what = "position" if abs(steps) == 1 else "positions"
    direction = "forward" if steps > 0 else "back"
    return f"keras's output is torch's moved {direction} by {abs(steps)} {what} along axis {axis}"


def _reordered(pairs: Pairs) -> str:
    """Return whether the last axis holds the same numbers in another order, the same for all probes."""
    width = pairs[0][0].shape[-1] if pairs[0][0].ndim else 0
    if not 1 < width <= WIDEST:
        return ""
    one, other = (np.concatenate([pair[side].reshape(-1, width) for pair in pairs]) for side in (0, 1))
    order = [_column(one, other[:, column]) for column in range(width)]
    if sorted(order) != list(range(width)):
        return ""
    first = ", ".join(map(str, order[:8]))
    return f"keras's output is torch's in another order along its last axis: {first}{', ...' if width > 8 else ''}"


def _column(table: Array, column: Array) -> int:
    """Return which column of a table equals another; -1 if none does."""
    distances = np.abs(table - column[:, None]).max(0)
    nearest = int(np.argmin(distances))
    return nearest if near(table[:, nearest], column) else -1
