"""How a loss, a gradient or an update differs, in words."""

from typing import Final

import numpy as np

from parity.core.arrays import Array
from parity.core.wording import agree, count
from parity.trace import keys

FACTOR: Final = 2.0**-20  # how far the ratio of two tensors' elements may vary where one is a multiple of the other
NEAR: Final = 1e-9  # elements that differ by less, relative to the largest, are alike
MOST: Final = 4  # rows that are listed
# What a tensor of each kind is, what a side does that has zeros there, and what the other side does.
WORDS: Final = {
    "gradient": ("the gradient", "gives {} no gradient", "does"),
    keys.UPDATE: ("the update", "leaves {} as it is", "moves it"),
    "buffer": ("the change of the buffer", "leaves {} at zero", "does not"),
}


def difference(kind: str, name: str, torch: Array | None, keras: Array | None) -> str:
    """Return how a tensor of both sides differs, in words; "" if a side has not recorded it.

    Args:
        kind: loss, gradient, buffer or update.
        name: the tensor's name.
        torch: torch's value.
        keras: Keras's.
    """
    if torch is None or keras is None or torch.shape != keras.shape or torch.dtype.kind != "f":
        return ""
    if kind == "loss":
        return _loss(float(torch), float(keras))
    what, none, does = WORDS[kind]
    for side, zeros, other, values in (("torch", torch, "keras", keras), ("keras", keras, "torch", torch)):
        if values.any() and not zeros.any():
            return f"{side} {none.format(name)}, {other} {does}"
        if rows := _empty_rows(zeros, values):
            return f"{side} {none.format(f'{rows} of {name}')}, {other} {does}"
    if factor := _factor(torch, keras):
        return f"{what} of {name} in keras is {factor:.6g} times that in torch"
    return f"{what} of {name} differs {_extent(torch, keras)}"


def _loss(torch: float, keras: float) -> str:
    more, ratio = keras - torch, keras / torch if torch else np.inf
    return f"keras's loss is torch's {'+' if more > 0 else '-'} {abs(more):.6g}, or {ratio:.6g} times it"


def _empty_rows(zeros: Array, values: Array) -> str:
    """Return the indices along the first axis at which only `zeros` is zero; "" if there are none, or too many."""
    if zeros.ndim < 2:
        return ""
    lines = [side.reshape(len(side), -1).any(1) for side in (zeros, values)]
    rows, count = np.flatnonzero(~lines[0] & lines[1]), int(lines[1].sum())
    if not 0 < len(rows) < count:
        return ""
    named = ", ".join(map(str, rows[:MOST])) + (f" and {len(rows) - MOST} more" if len(rows) > MOST else "")
    return f"{agree(len(rows), 'row')} {named}"


def _factor(torch: Array, keras: Array) -> float | None:
    """Return the number by which torch's elements are to be multiplied to give Keras's; None if there is none."""
    scale = float(np.vdot(torch, torch))
    factor = float(np.vdot(torch, keras)) / scale if scale else 0.0
    left = np.abs(keras - factor * torch).max(initial=0.0)
    return factor if factor and left <= FACTOR * np.abs(keras).max(initial=0.0) else None


def _extent(torch: Array, keras: Array) -> str:
    """Return in which of its elements a tensor differs, and how far the two sides point in one direction."""
    apart = np.abs(torch - keras) > NEAR * max(np.abs(torch).max(initial=0.0), np.abs(keras).max(initial=0.0))
    norms = float(np.linalg.norm(torch) * np.linalg.norm(keras))
    cosine = (
        f"; the cosine of the angle between the two is {float(np.vdot(torch, keras)) / norms:z.3g}" if norms else ""
    )
    rows = np.flatnonzero(apart.reshape(len(apart), -1).any(1)) if apart.ndim > 1 else np.zeros(0)
    if 0 < len(rows) < len(apart) and len(rows) <= MOST:
        return f"in {agree(len(rows), 'row')} {', '.join(map(str, rows))} alone{cosine}"
    return f"in {int(apart.sum())} of {count(apart.size, 'element')}{cosine}"
