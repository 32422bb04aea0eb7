"""Gradients that a training step of the user's own has clipped on one side by another rule than on the other.

Clipped together, all gradients are multiplied by one number, so that the norm of all is the limit (PyTorch's
clip_grad_norm_, Keras's global_clipnorm); each for itself, those above the limit get that norm (Keras's clipnorm).
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import numpy as np

from parity.core.arrays import Array
from parity.diagnose.gradients import precedes
from parity.diagnose.topic import Sides
from parity.results import Cause
from parity.trace import keys

Gradients = Mapping[str, Array]
SCOPE, EPSILON = "clip.scope", "clip.epsilon"
EXACT: Final = 2.0**-20  # of a factor: what two sides' gradients may be apart by rounding
ROOM: Final = 1e-5  # of a norm, for what clip_grad_norm_ adds to it
DIGITS: Final = 2  # of a limit that is told by its roundness alone; by chance one norm in 500 is so round
ROUNDED: Final = 1e-9  # of a norm, where nothing is added to it
ADDED: Final = 1e-6  # by clip_grad_norm_ to the norm by which it divides (torch/nn/utils/clip_grad.py)
UNCLIPPED, TOGETHER, EACH = "none", "all parameters", "each parameter"


class Clipped(NamedTuple):
    """A cause, by its id, and how the two sides have clipped."""

    id: str
    first: str | float
    second: str | float


def causes(sides: Sides) -> Iterator[Cause]:
    """Yield the cause of gradients that differ as clipping makes them, where the forward pass agrees to float32."""
    if not any(side.trace.manifest.training.own_step for side in sides.both):
        return
    differing = [tensor for tensor in sides.of("gradient") if tensor.verdict == "diverged"]
    visible = [tensor for tensor in sides.unequal if tensor.verdict == "diverged"]
    if not differing or any(precedes(tensor, differing[0]) for tensor in visible):
        return
    first = differing[0]
    torch, keras = (dict(_whole(side.tensors(first.step, first.replica))) for side in sides.both)
    names = sorted(torch.keys() & keras.keys())
    mine, theirs = ({name: each[name] for name in names} for each in (torch, keras))
    found = _found(mine, theirs)
    if not found and (turned := _found(theirs, mine)):
        found = turned._replace(first=turned.second, second=turned.first)
    if found:
        values: dict[str, Any] = dict(zip((side.name for side in sides.both), found[1:], strict=True))
        evidence = f"together, the gradients have the norms {_norm(mine):.7g} and {_norm(theirs):.7g}"
        yield Cause(id=found.id, where=first.name, **values, evidence=evidence)


def _whole(tensors: Mapping[str, Array]) -> Iterator[tuple[str, Array]]:
    """Yield the parameters' gradients that are applied, without those that are zero."""
    for key, array in tensors.items():
        kind, name = keys.split(key)
        if kind == "gradient" and not name.endswith(keys.LOCAL) and array.dtype.kind == "f" and np.any(array):
            yield name, array


def _found(mine: Gradients, theirs: Gradients) -> Clipped | None:
    """Return how both sides have clipped the same gradients; None if no such rules explain them."""
    factors = {name: _factor(mine[name], theirs[name]) for name in mine}
    known = [factor for factor in factors.values() if factor is not None and factor > 0]
    if len(known) < max(len(factors), 2):
        return None
    if max(known) - min(known) <= EXACT * max(known):
        return _of_one_factor(max(known), _norm(mine), _norm(theirs))
    total, norms = _norm(theirs), {name: _norm({name: array}) for name, array in mine.items()}
    limit = max(norms.values())
    at_limit = [name for name, norm in norms.items() if norm >= limit * (1 - ROOM)]
    below = [factor for name, factor in factors.items() if name not in at_limit and factor]
    if below and max(below) - min(below) > EXACT * max(below):
        return None
    if abs(total - limit) <= ROOM * limit:
        return Clipped(SCOPE, _rule(EACH, limit), _rule(TOGETHER, limit))
    is_kept = all(abs(factor - 1) <= EXACT for factor in below)
    return Clipped(SCOPE, _rule(EACH, limit), UNCLIPPED) if len(at_limit) > 1 and below and is_kept else None


def _of_one_factor(factor: float, mine: float, theirs: float) -> Clipped | None:
    """Return how both sides have clipped where all gradients differ by one factor; `mine`, `theirs`: norms of all."""
    if 1 - ROOM * 10 < factor < 1 and _is_round(mine, ROUNDED):
        norm = ADDED * factor / (1 - factor)  # before it was clipped
        return Clipped(EPSILON, 0.0, ADDED) if norm > mine else None
    return Clipped(SCOPE, UNCLIPPED, _rule(TOGETHER, theirs)) if factor < 1 - EXACT and _is_round(theirs) else None


def _is_round(number: float, room: float = ROOM) -> bool:
    return abs(number - float(f"{number:.{DIGITS}g}")) <= room * number


def _rule(how: str, limit: float) -> str:
    return f"{how}, at {float(f'{limit:.5g}'):g}"


def _factor(one: Array, other: Array) -> float | None:
    """Return the number by which a gradient has to be multiplied to be another; None if there is none."""
    if one.shape != other.shape:
        return None
    factor = float(np.vdot(one, other) / np.vdot(one, one))
    return factor if np.abs(other - factor * one).max() <= EXACT * np.abs(other).max() else None


def _norm(gradients: Gradients) -> float:
    return float(np.sqrt(sum(np.vdot(array, array) for array in gradients.values())))
