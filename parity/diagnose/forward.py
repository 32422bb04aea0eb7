"""Ask about the forward pass: each module where it first differs, and each tensor that is made between modules."""

from collections.abc import Iterator
from typing import Any

from parity.core.names import MODEL
from parity.diagnose import concatenation, wiring
from parity.diagnose.formula import Formula
from parity.diagnose.layers import LAYERS, call
from parity.diagnose.place import around, number, plain
from parity.diagnose.question import Question
from parity.diagnose.sides import Sides
from parity.trace import keys
from parity.verdict.traces import Unequal


def questions(sides: Sides) -> Iterator[Question]:
    """Yield a question for each module and each tensor between modules, in execution order."""
    asked: set[tuple[str, bool]] = set()
    for tensor in sides.of("input", "activation", "buffer"):
        module, is_input = _module(tensor), tensor.kind == "input"
        if (module, is_input) in asked or (is_input and module in keys.MODEL_INPUTS):
            continue
        layer = sides.reference.modules.get(module, "") in LAYERS and not is_input
        question = _of_layer(sides, tensor, module) if layer else _between_modules(sides, tensor, module)
        if question is not None:
            asked.add((module, is_input))
            yield question


def _module(tensor: Unequal) -> str:
    """Return the module that a tensor belongs to."""
    return plain(tensor.name) if tensor.kind != "buffer" else tensor.name.rpartition(".")[0]


def _of_layer(sides: Sides, tensor: Unequal, module: str) -> Question | None:
    """Return the question what a module computes; None where a side lacks the evidence: a later call may have it."""
    layer = LAYERS[sides.reference.modules[module]]
    first = 0 if tensor.kind == "buffer" else number(tensor.name)
    both = [call.observe(side, layer, module, first, tensor.step or 0, tensor.replica) for side in sides.both]
    return None if None in both else Question.of("activation", module, layer.formula, both)


def _between_modules(sides: Sides, tensor: Unequal, module: str) -> Question | None:
    """Return the question how a tensor was made of those before it."""
    if tensor.kind == "buffer":
        return None
    modules, key = sides.reference.modules, keys.key(tensor.kind, tensor.name)
    where = (around(module, modules) or MODEL) if tensor.kind == "input" else module
    step = tensor.step or 0
    both: tuple[Any, Any] | None = concatenation.observe(sides, key, step, tensor.replica)
    formula: Formula[Any] = concatenation.FORMULA if both else wiring.FORMULA
    both = both or wiring.observe(sides, key, step, tensor.replica)
    question = Question.of("activation", where, formula, both, own_key=plain(key))
    return question._replace(is_later=bool(tensor.step) and tensor._replace(step=0) not in sides.unequal)
