"""Gradients that one side has clipped by another rule than the other, by itself, its optimizer or the user's own step.

Clipped together, all gradients are multiplied by one number, so that the norm of all is the limit (PyTorch's
clip_grad_norm_, Keras's global_clipnorm); each for itself, those above the limit get that norm (Keras's clipnorm); by
value, each element is cut off at the limit (clip_grad_value_, clipvalue).
"""

import itertools
from collections.abc import Collection, Iterator, Mapping
from typing import Final, NamedTuple

import numpy as np

from parity.config.pair import ADDED_TO_NORM
from parity.core.arrays import Array
from parity.diagnose.entries import entry
from parity.diagnose.gradients import precedes
from parity.diagnose.solve import multiple, norm
from parity.diagnose.topic import Sides, repeated
from parity.results import Cause
from parity.trace import keys
from parity.verdict.traces import Unequal

Gradients = Mapping[str, Array]
SCOPE, EPSILON, NORM, VALUE, ROWS = "clip.scope", "clip.epsilon", "clip.norm", "clip.value", "clip.sparse_gradient"
EXACT: Final = 2.0**-20  # of a factor: what two sides' gradients may be apart by rounding
SHOWN: Final = ("gradient", keys.UPDATE, "parameter", "optimizer_state")
NOISE: Final = 2.0**-36  # of the largest norm of a gradient: what may be rounding, as of a bias before a norm
ROOM: Final = 1e-5  # of a norm, for what clip_grad_norm_ adds to it
DIGITS: Final = 2  # of a limit that is told by its roundness alone; by chance one norm in 500 is so round
ROUNDED: Final = 1e-9  # of a norm, where nothing is added to it
UNCLIPPED, TOGETHER, EACH, ELEMENTS = "none", "all parameters", "each parameter", "each element"


class Clipped(NamedTuple):
    """A cause, by its id, and how the two sides have clipped."""

    id: str
    first: str | float
    second: str | float


class Applied(NamedTuple):
    """The gradients that a side applies in a step, their norms as the side may count them, and the norm of all.

    Keras counts the rows of an embedding's gradient one by one; `rows` are the names of such gradients.
    """

    gradients: Gradients
    rows: Collection[str]
    norms: Mapping[str, float]
    norm: float


def causes(sides: Sides) -> Iterator[tuple[str, Cause]]:
    """Yield the kind of tensor and the cause where gradients differ as clipping makes them, and nothing before does."""
    visible = [tensor for tensor in sides.unequal if tensor.verdict == "diverged"]
    hidden = (tensor for tensor in sides.unequal if tensor.kind == "gradient" and tensor not in visible)
    shown = [tensor for tensor in visible if tensor.kind in SHOWN]
    for first in (*shown[:1], *itertools.islice(hidden, 1)):
        if not any(precedes(tensor, first) for tensor in visible) and (cause := _cause(sides, first)):
            yield "gradient" if first.kind == "gradient" else keys.UPDATE, cause
            return


def _cause(sides: Sides, first: Unequal) -> Cause | None:
    """Return the cause of the gradients in the step of the first tensor that differs; None if it is no clipping."""
    recorded = [side.tensors(first.step, first.replica) for side in sides.both]
    in_step = any(side.trace.manifest.training.own_step for side in sides.both)
    in_optimizer = any(key.endswith(keys.APPLIED) for key in itertools.chain(*recorded))
    names = sorted(set.intersection(*(set(_applied_gradients(tensors)) for tensors in recorded)))
    if not names or not (in_step if first.kind == "gradient" else in_optimizer):
        return None
    mine, theirs = (_applied(tensors, names) for tensors in recorded)
    factors = {name: multiple(mine.gradients[name], theirs.gradients[name]) for name in names}
    changed = [name for name, factor in factors.items() if factor is None or abs(factor - 1) > ROUNDED]
    groups = [names, *([changed] if len(changed) > 1 else [])]  # of one optimizer of several, or of one module
    for group in groups:
        parts = _part(mine, group), _part(theirs, group)
        clipped = compare_clipping(*parts)
        if not clipped and (turned := compare_clipping(*parts[::-1])):
            clipped = turned._replace(first=turned.second, second=turned.first)
        if clipped and clipped.first != clipped.second:
            norms = " and ".join(f"{norm(part.gradients.values()):.7g}" for part in parts)
            name = first.parameter or first.name
            where = name if group is names or name in group else group[0]
            return entry(clipped.id, where, sides.names, clipped[1:], f"together, the gradients have the norms {norms}")
    return None


def _applied_gradients(tensors: Mapping[str, Array]) -> Gradients:
    """Return the parameters' gradients that are applied, without those that are zero or nothing but rounding."""
    gradients = {}
    for name, recorded in keys.of_kind(tensors, "gradient").items():
        array = tensors.get(f"gradient/{name}{keys.APPLIED}", recorded)
        if not name.endswith((keys.LOCAL, *keys.EVIDENCE)) and array.dtype.kind == "f" and np.any(array):
            gradients[name] = array
    norms = {name: float(np.linalg.norm(array)) for name, array in gradients.items()}
    return {name: gradients[name] for name, length in norms.items() if length > NOISE * max(norms.values())}


def _applied(tensors: Mapping[str, Array], names: Collection[str]) -> Applied:
    recorded = keys.of_kind(tensors, "gradient")
    given = {name: recorded[name] for name in names}
    gradients = {name: recorded.get(name + keys.APPLIED, array) for name, array in given.items()}
    norms = {
        name: float(np.sqrt(np.sum(recorded.get(name + keys.SQUARES, array**2)))) for name, array in gradients.items()
    }
    counted = [float(np.sqrt(np.sum(squares(recorded, name)))) for name in given]
    rows = {name for name in gradients if name + keys.SQUARES in recorded}
    share = norm(gradients.values()) / norm(given.values())
    return Applied(gradients, rows, norms, float(np.linalg.norm(counted)) * share)


def _part(applied: Applied, names: Collection[str]) -> Applied:
    gradients = {name: applied.gradients[name] for name in names}
    share = norm(gradients.values()) / norm(applied.gradients.values())
    return applied._replace(gradients=gradients, norm=applied.norm * share)


def squares(gradients: Gradients, name: str) -> Array:
    """Return the squares of a gradient that a norm of all counts: of a list of rows, of each for itself."""
    return gradients.get(name + keys.CLIPPED, np.square(gradients[name]))


def compare_clipping(first: Applied, second: Applied) -> Clipped | None:
    """Return how both sides have clipped the same gradients; None if no such rules explain them."""
    mine, theirs = first.gradients, second.gradients
    factors = {name: multiple(mine[name], theirs[name]) for name in mine}
    known = {name: factor for name, factor in factors.items() if factor is not None and factor > 0}
    if _are_rows_cut(mine, theirs):
        return Clipped(ROWS, "dense", "IndexedSlices")
    if len(known) < max(len(factors), 2) and (cut := _by_value(first, second)):
        return cut
    # What one side holds as one weight the other may hold, and clip, in parts, as queries, keys and values.
    if len(known) < 2 or 2 * len(known) <= len(factors):
        return None
    most, least = max(known.values()), min(known.values())
    if most - least <= EXACT * most:
        return _of_one_factor(most, first, second) if len(known) == len(factors) else None
    below, *clipped = _by_factor(known)
    limits = []
    for group in (below, *clipped):
        # Parts of one sum have equal gradients, and Keras holds them as one weight.
        copies = repeated({name: mine[name] for name in group})
        limits.append(float(np.linalg.norm([first.norms[name] for name in group if name not in copies])))
    limit, others = limits[-1], limits[1:]
    is_any = len(others) == 1 and not is_round(limit)  # all gradients but one have some norm
    if is_any or max(others) - min(others) > ROOM * limit:
        return None
    if abs(norm(theirs.values()) - limit) <= ROOM * limit:
        return Clipped(SCOPE, _rule(EACH, limit), _rule(TOGETHER, limit))
    is_kept = abs(known[below[0]] - 1) <= EXACT or (abs(limits[0] - limit) <= ROOM * limit and is_round(limit))
    return Clipped(SCOPE, _rule(EACH, limit), UNCLIPPED) if len(limits) > 2 and is_kept else None


def _by_factor(factors: Mapping[str, float]) -> list[list[str]]:
    """Return the names of gradients by ascending factor: those of one variable of Keras's have one factor."""
    groups: list[list[str]] = []
    for name in sorted(factors, key=lambda name: factors[name]):
        if groups and factors[name] - factors[groups[-1][0]] <= EXACT * factors[name]:
            groups[-1].append(name)
        else:
            groups.append([name])
    return groups


def _by_value(first: Applied, second: Applied) -> Clipped | None:
    """Return how both sides have clipped, where the second side's gradients are cut off, else None."""
    names = first.gradients.keys() - {*first.rows, *second.rows}  # whose rows are cut off one by one
    mine, theirs = ({name: side.gradients[name] for name in names} for side in (first, second))
    limit = max((float(np.abs(array).max()) for array in theirs.values()), default=0.0)
    within = {name: np.abs(array) < limit * (1 - ROUNDED) for name, array in theirs.items()}
    cut = sum(int((~each).sum()) for each in within.values())
    kept = {name: mine[name][each] for name, each in within.items() if np.any(mine[name][each])}
    factors = {name: float(np.vdot(own, theirs[name][within[name]]) / np.vdot(own, own)) for name, own in kept.items()}
    if cut < 2 or not factors:  # the largest of all is always at the limit
        return None
    most, least = max(factors.values()), min(factors.values())
    whole = {name: factors.get(name, most) * array for name, array in mine.items()}
    if least <= 0 or all(np.abs(array).max() <= limit * (1 + EXACT) for array in whole.values()):
        return None
    if any(np.abs(np.clip(whole[name], -limit, limit) - theirs[name]).max() > EXACT * limit for name in whole):
        return None
    how = UNCLIPPED if abs(most - 1) <= EXACT else _rule(TOGETHER, norm(first.gradients.values()))
    return Clipped(VALUE, how if most - least <= EXACT * most else EACH, _rule(ELEMENTS, limit))


def _are_rows_cut(mine: Gradients, theirs: Gradients) -> bool:
    """Return whether both are cut off at one value, of tables theirs before the rows of one id are added."""
    apart = {name for name in mine if np.abs(mine[name] - theirs[name]).max() > EXACT * np.abs(mine[name]).max()}
    alike = [np.abs(theirs[name]) for name in theirs.keys() - apart]
    limit = max((array.max() for array in alike), default=0.0)
    is_cut = sum(int((array > limit * (1 - ROUNDED)).sum()) for array in alike) > 1
    tables = [(np.abs(mine[name]).max(), np.abs(theirs[name]).max()) for name in apart if mine[name].ndim == 2]
    are_beyond = all(first <= limit * (1 + ROUNDED) < second for first, second in tables)
    return is_cut and 0 < len(tables) == len(apart) and are_beyond


def _of_one_factor(factor: float, first: Applied, second: Applied) -> Clipped | None:
    """Return how both sides have clipped where all gradients differ by one factor."""
    mine, theirs = norm(first.gradients.values()), norm(second.gradients.values())
    if abs(second.norm - theirs) > ROUNDED * theirs and is_round(second.norm, ROUNDED) and is_round(mine):
        return Clipped(ROWS, "dense", "IndexedSlices")
    if 1 - ROOM * 10 < factor < 1 and is_round(mine, ROUNDED):
        before = ADDED_TO_NORM * factor / (1 - factor)  # the norm before it was clipped
        return Clipped(EPSILON, 0.0, ADDED_TO_NORM) if before > mine else None
    if factor < 1 - EXACT and is_round(theirs):
        if is_round(mine):
            return Clipped(NORM, float(f"{mine:.5g}"), float(f"{theirs:.5g}"))
        return Clipped(SCOPE, UNCLIPPED, _rule(TOGETHER, theirs))
    return None


def is_round(number: float, room: float = ROOM) -> bool:
    return abs(number - float(f"{number:.{DIGITS}g}")) <= room * number


def _rule(how: str, limit: float) -> str:
    return f"{how}, at {float(f'{limit:.5g}'):g}"
