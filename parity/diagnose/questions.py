"""What is to be explained: for every tensor that is not a match, both sides' evidence and a formula.

Each module, loss, reduction and optimizer is asked for what it made of its own recorded inputs, so that
a fault does not hide the next one. A module is asked once, where it first was not a match.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from parity.config import weights
from parity.core.names import MODEL
from parity.data.batches import Dataset
from parity.diagnose import gradients, initial_parameters, inputs, losses, optimizers, reductions, samples, wiring
from parity.diagnose.formula import Formula
from parity.diagnose.layers import FORMULAS
from parity.diagnose.observation import Call
from parity.diagnose.place import around, number, plain
from parity.diagnose.sides import Side
from parity.trace import keys
from parity.verdict.traces import Unequal

OF_EACH = 2  # parameters that are looked at: so many vectors and so many matrices
MOST_NOISY = 4  # modules whose low runs are looked at
LARGEST = 1 << 16  # elements that are worth looking at
BEFORE_BACKWARD = ("sample", "input", "activation", "loss")


class Question(NamedTuple):
    """`kind`: of the tensor that was not a match; `where`: the module or tensor that a cause would be named at."""

    kind: str
    where: str
    formula: Formula[Any]
    reference: Any
    candidate: Any

    @property
    def tensor(self) -> str:
        """The key of what is explained, without the number of the call; between modules it has a place of its own."""
        between = isinstance(self.reference, wiring.Junction)
        return plain(self.reference.name) if between else keys.key(self.kind, self.where)


class Sides(NamedTuple):
    """Both sides, what is not a match between them, in execution order, and what is noisier on one, by side."""

    reference: Side
    candidate: Side
    unequal: list[Unequal]
    noisier: dict[str, list[str]]

    def of(self, *kinds: str) -> list[Unequal]:
        """What is not a match of some kinds, after the first step has begun."""
        return [each for each in self.unequal if each.kind in kinds and each.step is not None]


class LowRun(NamedTuple):
    """A module of the side that is noisier in its low run."""

    side: Side
    where: str
    formula: Formula[Any]
    high: Call
    low: Call


def low_runs(sides: Sides) -> Iterator[LowRun]:
    """The first few modules that are noisier than they should be."""
    for side in sides[:2]:
        names = (key.partition("/")[2] for key in sides.noisier.get(side.name, ()))
        known = [name for name in names if side.modules.get(name) in FORMULAS]
        for name in known[:MOST_NOISY]:
            high, low = side.call(name, 0, 0, 0), side.low_call(name)
            if high and low:
                yield LowRun(side, name, FORMULAS[side.modules[name]], high, low)


def one_sided(sides: Sides) -> list[Unequal]:
    """The gradients of the first step that only one side has."""
    found = sides.of("gradient")
    first = (each for each in found if each.step == found[0].step)
    return [each for each in first if sides.reference.lacks(each) != sides.candidate.lacks(each)]


def questions(sides: Sides) -> Iterator[Question]:
    """All questions, in the order in which things happen in a step."""
    for ask in (_starts, _samples, _inputs, _forward, _losses, _reductions, _gradients, _updates):
        for question in ask(sides):
            if question.reference is not None and question.candidate is not None:
                yield question


def _starts(sides: Sides) -> Iterator[Question]:
    names = [each.name for each in sides.unequal if each.step is None and each.kind == "parameter"]
    drawn = weights.initial(sides.reference.case) if names else {}
    for name in dict.fromkeys(names):
        if name in drawn:
            both = (side.start(name, drawn[name]) for side in sides[:2])
            yield Question("parameter", name, initial_parameters.FORMULA, *both)


def _samples(sides: Sides) -> Iterator[Question]:
    if not sides.of("sample"):
        return
    size = Dataset(sides.reference.case).size
    both = (side.samples(size) for side in sides[:2])
    yield Question("sample", "indices", samples.FORMULA, *both)


def _inputs(sides: Sides) -> Iterator[Question]:
    if sides.of("sample"):
        return  # other samples are other inputs
    asked = set()
    for each in sides.of("input"):
        name = plain(each.name)
        if name in keys.MODEL_INPUTS and each.name not in asked:
            asked.add(each.name)
            both = (side.input(each.name, each.step or 0, each.replica, sides.reference) for side in sides[:2])
            yield Question("input", each.name, inputs.FORMULA, *both)


def _forward(sides: Sides) -> Iterator[Question]:
    """Modules, in the order of the execution, and what happens between them."""
    asked: set[tuple[str, bool]] = set()
    for each in sides.of("input", "activation", "buffer"):
        module = plain(each.name) if each.kind != "buffer" else each.name.rpartition(".")[0]
        is_input = each.kind == "input"
        if (module, is_input) in asked or (is_input and module in keys.MODEL_INPUTS):
            continue
        formula = FORMULAS.get(sides.reference.modules.get(module, ""))
        step, call = each.step or 0, 0 if each.kind == "buffer" else number(each.name)
        if formula and not is_input:
            both = [side.call(module, call, step, each.replica) for side in sides[:2]]
            if None not in both:
                asked.add((module, is_input))
                yield Question("activation", module, formula, *both)
        elif each.kind != "buffer":
            asked.add((module, is_input))
            key = keys.key(each.kind, each.name)
            modules = sides.reference.modules
            where = (around(module, modules) or MODEL) if is_input else module
            yield Question(
                "activation", where, wiring.FORMULA, *(side.junction(key, step, each.replica) for side in sides[:2])
            )


def _losses(sides: Sides) -> Iterator[Question]:
    for each in sides.of("loss")[:1]:
        both = (side.loss(each.step or 0, each.replica) for side in sides[:2])
        yield Question("loss", "loss", losses.formula(sides.reference.case), *both)


def _reductions(sides: Sides) -> Iterator[Question]:
    """Gradients from what backward left on the replicas."""
    reduced = [each for each in sides.of("gradient") if not each.name.endswith(keys.LOCAL)]
    for each in _telling(sides, reduced):
        both = (side.reduction(each.name, each.step or 0, each.replica) for side in sides[:2])
        yield Question("gradient", each.name, reductions.FORMULA, *both)


def _gradients(sides: Sides) -> Iterator[Question]:
    """Gradients beside each other, where nothing before them explains why they differ."""
    found = sides.of("gradient")
    if not found or any(_precedes(each, found[0]) for each in sides.unequal):
        return
    first = [each for each in found if each.step == found[0].step]
    local = [each for each in first if each.name.endswith(keys.LOCAL)]
    reduced = {each for each in first if sides.reference.reduction(each.name, each.step or 0, each.replica)}
    for each in _telling(sides, local or [each for each in first if each not in reduced]):
        both = (side.gradient(each.name, each.step or 0, each.replica, sides.reference) for side in sides[:2])
        yield Question("gradient", each.name, gradients.FORMULA, *both)


def _updates(sides: Sides) -> Iterator[Question]:
    """What the optimizer made of its own gradients."""
    found = sides.of(keys.UPDATE, "optimizer_state")
    names = {_parameter(each): each for each in reversed(found)}
    for each in _telling(sides, [each._replace(name=name) for name, each in names.items() if name]):
        both = (side.updates(each.name, each.replica) for side in sides[:2])
        yield Question(keys.UPDATE, each.name, optimizers.formula(sides.reference.case), *both)


def _parameter(each: Unequal) -> str:
    """The parameter that an update or a slot belongs to."""
    return each.name if each.kind == keys.UPDATE else each.name.rpartition(".")[0]


def _precedes(each: Unequal, gradient: Unequal) -> bool:
    """Whether a tensor that is not a match comes before the backward pass of that step."""
    step = -1 if each.step is None else each.step
    return step < (gradient.step or 0) or (step == gradient.step and each.kind in BEFORE_BACKWARD)


def _telling(sides: Sides, found: list[Unequal]) -> list[Unequal]:
    """A few parameters of one axis and a few of more, each once: large ones, since every element is evidence."""
    sizes = {name: array.size for name, array in sides.reference.parameters.items()}
    once = {each.name: each for each in reversed(found) if each.name.removesuffix(keys.LOCAL) in sizes}
    ordered = sorted(once.values(), key=lambda each: _effort(sizes[each.name.removesuffix(keys.LOCAL)]))
    axes = {name: min(array.ndim, 2) for name, array in sides.reference.parameters.items()}
    groups = ([each for each in ordered if axes[each.name.removesuffix(keys.LOCAL)] == count] for count in (2, 1, 0))
    return [each for group in groups for each in group[:OF_EACH]]


def _effort(size: int) -> tuple[bool, int]:
    """Sorts the largest first, and what is too large to be worth its time last, the smallest first."""
    return size > LARGEST, size if size > LARGEST else -size
