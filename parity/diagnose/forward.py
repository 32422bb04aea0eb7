"""Ask about the forward pass: each module where it first differs, and each tensor that is made between modules.

What is made between modules may be a concatenation: as in wiring.py, its parts are searched for among the tensors
recorded before it. Concatenating copies numbers, so each part is equal to its piece of the whole, bit by bit.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from parity.core.arrays import Array
from parity.diagnose import wiring
from parity.diagnose.explain import Change, Explained
from parity.diagnose.formula import Formula, Settings, Trait, require
from parity.diagnose.layers import LAYERS, call
from parity.diagnose.place import around
from parity.diagnose.topic import Question, Sides
from parity.diagnose.wiring import Junction
from parity.trace import keys
from parity.trace.keys import MODEL, number, plain
from parity.verdict.traces import Unequal

Keys = tuple[str, ...]
Sums = Mapping[str, tuple[Keys, Keys]]  # by the key of the sum, its terms on both sides
Answer = tuple[Question, Explained]
MOST_PARTS: Final = 8
TERMS, SCALE = "terms", "scale"
EMPTY: Final = ("Identity", "Sequential")  # PyTorch's modules that return what they are given if nothing is in them
CLOSE = 1e-6


def questions(sides: Sides) -> Iterator[Question]:
    """Yield a question for each module and each tensor between modules, in execution order."""
    asked: set[tuple[str, bool]] = set()
    for tensor in sides.of("input", "activation", "buffer"):
        module = plain(tensor.name) if tensor.kind != "buffer" else tensor.name.rpartition(".")[0]
        is_input = tensor.kind == "input"
        if (module, is_input) in asked or (is_input and module in keys.MODEL_INPUTS):
            continue
        layer = sides.reference.modules.get(module, "") in LAYERS and not is_input
        question = _of_layer(sides, tensor, module) if layer else _between_modules(sides, tensor, module)
        if question is not None:
            asked.add((module, is_input))
            yield question


def _of_layer(sides: Sides, tensor: Unequal, module: str) -> Question | None:
    """Return the question what a module computes; None where a side lacks the evidence: a later call may have it."""
    layer = LAYERS[sides.reference.modules[module]]
    first = 0 if tensor.kind == "buffer" else number(tensor.name)
    both = [call.observe(side, layer, module, first, tensor.step or 0, tensor.replica) for side in sides.both]
    return None if None in both else Question("activation", module, layer.formula, both)


def _between_modules(sides: Sides, tensor: Unequal, module: str) -> Question | None:
    """Return the question how a tensor was made of those before it."""
    modules, key = sides.reference.modules, keys.key(tensor.kind, tensor.name)
    # What an identity returns is made by another module: it was taken for something else if it seems to be a sum.
    is_empty = tensor.kind == "activation" and modules.get(module) in EMPTY and f"{module}.0" not in modules
    if tensor.kind == "buffer" or is_empty:
        return None
    where = (around(module, modules) or MODEL) if tensor.kind == "input" else module
    step = tensor.step or 0
    pieces = _concatenation(sides, key, step, tensor.replica)
    formula: Formula[Any] = CONCATENATION if pieces else wiring.FORMULA
    both = pieces or wiring.observe(sides, key, step, tensor.replica, wiring.of_its_shape)
    is_later = bool(tensor.step) and tensor._replace(step=0) not in sides.unequal
    return Question("activation", where, formula, both, own_key=plain(key), is_later=is_later)


def _concatenation(sides: Sides, key: str, step: int, replica: int) -> tuple[Junction, Junction] | None:
    """Return a tensor on both sides with what it may be made of; None if the reference's is no concatenation."""
    reference, candidate = wiring.observe(sides, key, step, replica, _of_pieces)
    if reference is None or candidate is None:
        return None
    is_joined = any(True for axis in _axes(reference) for _ in concatenations(reference, axis))
    return (reference, candidate) if is_joined else None


def _of_pieces(junction: Junction) -> Junction:
    """Return a tensor with those before it that have its shape but for one axis, on which they are shorter."""
    shape = junction.value.shape
    pieces = {name: array for name, array in junction.earlier.items() if _axis(array.shape, shape) is not None}
    return replace(junction, earlier=pieces)


def _axis(part: tuple[int, ...], whole: tuple[int, ...]) -> int | None:
    """Return the only axis on which a part is shorter than the whole, or None."""
    if len(part) != len(whole):
        return None
    others = [axis for axis, sizes in enumerate(zip(part, whole, strict=True)) if sizes[0] != sizes[1]]
    return others[0] if len(others) == 1 and 0 < part[others[0]] < whole[others[0]] else None


def _axes(junction: Junction, settings: Settings | None = None) -> list[int]:
    """Return the axes along which earlier tensors are pieces of the whole."""
    axes = {_axis(array.shape, junction.value.shape) for array in junction.earlier.values()}
    return sorted(axis for axis in axes if axis is not None)


def concatenations(junction: Junction, axis: int, begin: int = 0, before: Keys = ()) -> Iterator[Keys]:
    """Yield the sequences of earlier tensors that make up the whole from position `begin` of an axis on."""
    whole = junction.value
    if begin == whole.shape[axis]:
        yield before
        return
    tried = set()
    latest = list(junction.earlier.items())[::-1] if len(before) < MOST_PARTS else []
    for name, array in latest:
        first = junction.names.get(name, name)
        size = array.shape[axis]
        if first in tried or _axis(array.shape, whole.shape) != axis or begin + size > whole.shape[axis]:
            continue
        piece = whole.take(range(begin, begin + size), axis)
        if piece.flat[0] == array.flat[0] and np.array_equal(piece, array):
            tried.add(first)
            yield from concatenations(junction, axis, begin + size, (*before, first))


def _concatenated(junction: Junction, axis: int, parts: Keys) -> dict[str, Array]:
    arrays = [array for part in parts for array in junction.tensors(part)[:1]]
    require(len(arrays) == len(parts), "all parts before")
    axes = {_axis(array.shape, junction.value.shape) for array in arrays}
    require(axes == {axis}, "parts along the axis")
    return {"input": np.concatenate(arrays, axis)}


CONCATENATION: Final = Formula(
    _concatenated,
    (
        Trait("axis", "module.wiring", _axes),
        Trait(
            "parts",
            "module.wiring",
            lambda junction, settings: concatenations(junction, settings["axis"]),
            lambda mine, theirs: "concatenation.order" if sorted(mine) == sorted(theirs) else "",
        ),
    ),
    is_function=True,
)


def without_moved(answers: Sequence[Answer]) -> list[Answer]:
    """Return the answers; those that only tell where a term is added say that both sides compute the same.

    One framework's attention adds its residual itself, the other's leaves that to the block. Each of the two modules
    then adds up other tensors than its counterpart, and both together do not. So it is with a factor, such as an
    embedding's.
    """
    answers = [(ask, answer._replace(changes=_without_order(answer))) for ask, answer in answers]
    sums = {
        ask.tensor: (answer.settings[0][TERMS], answer.settings[1][TERMS])
        for ask, answer in answers
        if ask.formula is wiring.FORMULA and _differing_traits(answer) == [TERMS]
        if answer.settings and all(map(_is_plain, answer.settings))
    }
    moved: set[str] = set()
    for key in sums:
        used: tuple[set[str], set[str]] = set(), set()
        torch, keras = (sorted(_expanded(key, side, sums, used[side])) for side in (0, 1))
        if torch == keras:
            moved |= used[0] | used[1]
    scales = {ask.tensor: answer.changes[0] for ask, answer in answers if _differing_traits(answer) == [SCALE]}
    for ask, answer in answers:
        source = _scaled_tensor(ask, answer)
        if source in scales and ask.tensor in scales:
            inner, outer = scales[source], scales[ask.tensor]
            if math.isclose(inner.reference * outer.reference, inner.candidate * outer.candidate, rel_tol=CLOSE):
                moved |= {source, ask.tensor}
    return [(ask, answer._replace(same=True, changes=()) if ask.tensor in moved else answer) for ask, answer in answers]


def _without_order(answer: Explained) -> tuple[Change, ...]:
    """Return the changes of an answer without that of the order of terms: of a sum's it says nothing."""
    return tuple(
        change
        for change in answer.changes
        if len(answer.changes) == 1 or change.trait != TERMS or sorted(change.reference) != sorted(change.candidate)
    )


def _scaled_tensor(ask: Question, answer: Explained) -> str:
    """Return the tensor of which another one is a multiple on both sides; "" if there is none."""
    settings = answer.settings[0] if ask.formula is wiring.FORMULA and answer.settings else {}
    terms: Keys = settings.get(TERMS, ())
    return terms[0] if len(terms) == 1 and _is_plain({**settings, SCALE: 1.0}) else ""


def _differing_traits(answer: Explained) -> list[str]:
    return [change.trait for change in answer.changes]


def _is_plain(settings: Settings) -> bool:
    """Return whether nothing is done but adding up."""
    usual = {"function": "identity", "operation": "sum", "added": "nothing", "rounded": "nothing", "scale": 1.0}
    return all(settings[name] == value for name, value in usual.items())


def _expanded(key: str, side: int, sums: Sums, used: set[str]) -> list[str]:
    """Return the terms of a side's sum, those of sums among them in place of these; the sums are added to `used`."""
    used.add(key)
    terms = []
    for term in sums[key][side]:
        terms += _expanded(term, side, sums, used) if term in sums and term not in used else [term]
    return terms
