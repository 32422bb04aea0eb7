"""The questions that a diagnosis asks: for each tensor that differs, the evidence of both sides and a formula.

Each module, loss, reduction and optimizer is recomputed from its own recorded inputs, so that a fault does not hide
the next one. A module is asked about once, where it first differs.
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

OF_EACH = 2  # parameters to ask about for each number of axes (matrices and more, vectors, scalars)
MOST_NOISY = 4  # modules of a side whose low runs are examined
LARGEST = 1 << 16  # elements; larger parameters are asked about only if there are too few others
# Kinds of tensors that exist before the backward pass of their step.
BEFORE_BACKWARD = ("sample", "input", "activation", "loss")


class Question(NamedTuple):
    """What a formula has to explain: one tensor or module that differs, as both sides recorded it.

    Attributes:
        kind: the kind of the tensor that differs (keys.py lists the kinds).
        where: the module or tensor at which a cause would be reported.
        formula: recomputes the observation under each setting.
        reference: the reference's observation (observation.py), for which the formula is made.
        candidate: the same observation of the candidate.
    """

    kind: str
    where: str
    formula: Formula[Any]
    reference: Any
    candidate: Any

    @property
    def tensor(self) -> str:
        """The key of what is explained, without the call number.

        A tensor between modules keeps its own key: `where` is the module around it, which has a question of its own.
        """
        between = isinstance(self.reference, wiring.Junction)
        return plain(self.reference.name) if between else keys.key(self.kind, self.where)


class Sides(NamedTuple):
    """Both sides of a comparison, and what differs between them.

    Attributes:
        unequal: the tensors that are not a match, in execution order.
        noisier: by side, the keys of tensors whose noise is much larger than on the other side.
    """

    reference: Side
    candidate: Side
    unequal: list[Unequal]
    noisier: dict[str, list[str]]

    def of(self, *kinds: str) -> list[Unequal]:
        """Return the tensors of some kinds that differ, without the state before the first step."""
        return [tensor for tensor in self.unequal if tensor.kind in kinds and tensor.step is not None]


class LowRun(NamedTuple):
    """The high and the low run of one module, on the side whose low run is noisier."""

    side: Side
    where: str
    formula: Formula[Any]
    high: Call
    low: Call


def low_runs(sides: Sides) -> Iterator[LowRun]:
    """Yield the first few modules whose low runs are noisier than they should be."""
    for side in sides[:2]:
        names = (key.partition("/")[2] for key in sides.noisier.get(side.name, ()))
        with_formula = [name for name in names if side.modules.get(name) in FORMULAS]
        for name in with_formula[:MOST_NOISY]:
            high, low = side.call(name, 0, 0, 0), side.low_call(name)
            if high and low:
                yield LowRun(side, name, FORMULAS[side.modules[name]], high, low)


def one_sided(sides: Sides) -> list[Unequal]:
    """Return the gradients of the first step with a difference that exist on one side only."""
    differing = sides.of("gradient")
    first = (tensor for tensor in differing if tensor.step == differing[0].step)
    return [tensor for tensor in first if sides.reference.lacks(tensor) != sides.candidate.lacks(tensor)]


def questions(sides: Sides) -> Iterator[Question]:
    """Yield all questions, in the order in which things happen in a step."""
    for ask in (_initial_parameters, _samples, _inputs, _forward, _losses, _reductions, _gradients, _updates):
        for question in ask(sides):
            if question.reference is not None and question.candidate is not None:
                yield question


def _initial_parameters(sides: Sides) -> Iterator[Question]:
    """Ask about parameters that differ before the first step."""
    names = [tensor.name for tensor in sides.unequal if tensor.step is None and tensor.kind == "parameter"]
    drawn = weights.initial(sides.reference.case) if names else {}
    for name in dict.fromkeys(names):
        if name in drawn:
            both = (side.initial_parameter(name, drawn[name]) for side in sides[:2])
            yield Question("parameter", name, initial_parameters.FORMULA, *both)


def _samples(sides: Sides) -> Iterator[Question]:
    """Ask which samples each replica drew."""
    if not sides.of("sample"):
        return
    size = Dataset(sides.reference.case).size
    both = (side.samples(size) for side in sides[:2])
    yield Question("sample", "indices", samples.FORMULA, *both)


def _inputs(sides: Sides) -> Iterator[Question]:
    """Ask about the model's inputs, unless other samples were drawn: then they must differ."""
    if sides.of("sample"):
        return
    asked = set()
    for tensor in sides.of("input"):
        name = plain(tensor.name)
        if name in keys.MODEL_INPUTS and tensor.name not in asked:
            asked.add(tensor.name)
            both = (side.input(tensor.name, tensor.step or 0, tensor.replica, sides.reference) for side in sides[:2])
            yield Question("input", tensor.name, inputs.FORMULA, *both)


def _forward(sides: Sides) -> Iterator[Question]:
    """Ask about the modules in execution order, and about tensors that are made between modules."""
    asked: set[tuple[str, bool]] = set()
    for tensor in sides.of("input", "activation", "buffer"):
        module = plain(tensor.name) if tensor.kind != "buffer" else tensor.name.rpartition(".")[0]
        is_input = tensor.kind == "input"
        if (module, is_input) in asked or (is_input and module in keys.MODEL_INPUTS):
            continue
        formula = FORMULAS.get(sides.reference.modules.get(module, ""))
        step, call = tensor.step or 0, 0 if tensor.kind == "buffer" else number(tensor.name)
        if formula and not is_input:
            both = [side.call(module, call, step, tensor.replica) for side in sides[:2]]
            if None not in both:
                asked.add((module, is_input))
                yield Question("activation", module, formula, *both)
        elif tensor.kind != "buffer":
            asked.add((module, is_input))
            key = keys.key(tensor.kind, tensor.name)
            modules = sides.reference.modules
            where = (around(module, modules) or MODEL) if is_input else module
            yield Question(
                "activation", where, wiring.FORMULA, *(side.junction(key, step, tensor.replica) for side in sides[:2])
            )


def _losses(sides: Sides) -> Iterator[Question]:
    """Ask about the first loss that differs."""
    for tensor in sides.of("loss")[:1]:
        both = (side.loss(tensor.step or 0, tensor.replica) for side in sides[:2])
        yield Question("loss", "loss", losses.formula(sides.reference.case), *both)


def _reductions(sides: Sides) -> Iterator[Question]:
    """Ask how the replicas' gradients were reduced, where both the local and the reduced ones were recorded."""
    reduced = [tensor for tensor in sides.of("gradient") if not tensor.name.endswith(keys.LOCAL)]
    for tensor in _most_informative(sides, reduced):
        both = (side.reduction(tensor.name, tensor.step or 0, tensor.replica) for side in sides[:2])
        yield Question("gradient", tensor.name, reductions.FORMULA, *both)


def _gradients(sides: Sides) -> Iterator[Question]:
    """Ask about gradients by comparing the two sides directly, where backward cannot be recomputed.

    Only where the forward pass agrees: else the gradients differ because of that.
    """
    differing = sides.of("gradient")
    if not differing or any(_precedes(tensor, differing[0]) for tensor in sides.unequal):
        return
    first = [tensor for tensor in differing if tensor.step == differing[0].step]
    local = [tensor for tensor in first if tensor.name.endswith(keys.LOCAL)]
    reduced = {tensor for tensor in first if sides.reference.reduction(tensor.name, tensor.step or 0, tensor.replica)}
    for tensor in _most_informative(sides, local or [tensor for tensor in first if tensor not in reduced]):
        both = (side.gradient(tensor.name, tensor.step or 0, tensor.replica, sides.reference) for side in sides[:2])
        yield Question("gradient", tensor.name, gradients.FORMULA, *both)


def _updates(sides: Sides) -> Iterator[Question]:
    """Ask what the optimizer made of its own recorded gradients."""
    differing = sides.of(keys.UPDATE, "optimizer_state")
    names = {_parameter(tensor): tensor for tensor in reversed(differing)}
    for tensor in _most_informative(sides, [tensor._replace(name=name) for name, tensor in names.items() if name]):
        both = (side.updates(tensor.name, tensor.replica) for side in sides[:2])
        yield Question(keys.UPDATE, tensor.name, optimizers.formula(sides.reference.case), *both)


def _parameter(tensor: Unequal) -> str:
    """Return the parameter that an update or an optimizer slot belongs to."""
    return tensor.name if tensor.kind == keys.UPDATE else tensor.name.rpartition(".")[0]


def _precedes(tensor: Unequal, gradient: Unequal) -> bool:
    """Return whether a tensor comes before the backward pass that made a gradient."""
    step = -1 if tensor.step is None else tensor.step
    return step < (gradient.step or 0) or (step == gradient.step and tensor.kind in BEFORE_BACKWARD)


def _most_informative(sides: Sides, candidates: list[Unequal]) -> list[Unequal]:
    """Return a few of the tensors to ask about: some matrices, some vectors and some scalars, each parameter once.

    Large ones come first, since every element is evidence, unless they are so large that they take too long.
    """
    sizes = {name: array.size for name, array in sides.reference.parameters.items()}
    once = {tensor.name: tensor for tensor in reversed(candidates) if tensor.name.removesuffix(keys.LOCAL) in sizes}
    ordered = sorted(once.values(), key=lambda tensor: _by_information(sizes[tensor.name.removesuffix(keys.LOCAL)]))
    axes = {name: min(array.ndim, 2) for name, array in sides.reference.parameters.items()}
    groups = (
        [tensor for tensor in ordered if axes[tensor.name.removesuffix(keys.LOCAL)] == count] for count in (2, 1, 0)
    )
    return [tensor for group in groups for tensor in group[:OF_EACH]]


def _by_information(size: int) -> tuple[bool, int]:
    """Return a sort key: the largest first, then those above LARGEST elements, the smallest of them first."""
    return size > LARGEST, size if size > LARGEST else -size
