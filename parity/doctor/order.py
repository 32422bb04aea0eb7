"""Compare the order of a loss's targets with the order of the samples that the model was given.

Rows are compared by their values, so that it does not matter how they were reordered. A batch says nothing if two of
its rows are equal, or if its values were changed on the way.
"""

import ast
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from parity.doctor import rewrite
from parity.doctor.evidence import Code
from parity.doctor.rewrite import Expression, Spot
from parity.trace.keys import MODEL

Rows = list[bytes]
LARGE = 2**24  # elements in a batch: larger ones are not compared


def rows(array: Any) -> Rows:
    """Return the bytes of each sample's values, as float64 so that dtype and shape do not matter."""
    wide = np.asarray(array, np.float64)
    return [row.tobytes() for row in wide.reshape(len(wide), -1)] if wide.ndim else []


def order(given: Rows, seen: Rows) -> list[int] | None:
    """Return the index in `given` of each row in `seen`; None if they are not the same rows, or not unique."""
    numbers = {row: number for number, row in enumerate(given)}
    if len(numbers) < len(given) or sorted(given) != sorted(seen):
        return None
    return [numbers[row] for row in seen]


def compared(batch: dict[str, Rows], fed: Sequence[Rows], target: Rows) -> Literal["", "together", "apart"]:
    """Return whether targets have the order of the samples that the model got ("together"), or not ("apart").

    It is "" if that cannot be known. `batch`: the rows of each input of the step, by name, targets included. `fed`: the
    rows that the model got in each of its calls, of which the order of one is enough. `target`: those in the loss.
    """
    if len(set(target)) < 2:
        return ""
    labels = {name: candidate for name, candidate in batch.items() if sorted(candidate) == sorted(target)}
    in_order = []
    for fed_rows, (name, given) in itertools.product(fed, batch.items()):
        beside = [candidate for key, candidate in labels.items() if key != name]
        if beside and len(target) == len(fed_rows) and (numbers := order(given, fed_rows)) is not None:
            in_order.append(any([candidate[i] for i in numbers] == target for candidate in beside))
    return ("together" if any(in_order) else "apart") if in_order else ""


class Samples:
    """The samples of a step, as its inputs have them and as the model is given them.

    `rows_of` returns the rows of a tensor, or none; `permutation` is the code of a random order.
    """

    def __init__(self, inputs: Mapping[str, Any], rows_of: Callable[[Any], Rows], permutation: str):
        self.rows_of, self.permutation = rows_of, permutation
        self._batch = {name: rows_of(tensor) for name, tensor in inputs.items()} if len(inputs) > 1 else {}
        self._fed: list[tuple[Rows, Spot | None]] = []  # of each call of the model, and what reordered them

    def feed(self, module: str, given: Sequence[Any], picked: Callable[[Any], Spot | None]) -> None:
        """Note what a module is called with, and what reordered it; only the whole model's inputs count."""
        if module == MODEL and self._batch:
            self._fed += [(self.rows_of(tensor), picked(tensor)) for tensor in given]

    def explained(self, target: Any, picked: Spot | None) -> tuple[Literal["", "together", "apart"], Code | None]:
        """Return how a loss's targets relate to what the model was given, and a correction if they are apart."""
        relation = compared(self._batch, [rows for rows, _ in self._fed], self.rows_of(target)) if self._fed else ""
        if relation != "apart":
            return relation, None
        of_inputs = [spot for _, spot in self._fed if spot]
        if code := mended(of_inputs[-1] if of_inputs else None, picked, self.permutation):
            return relation, code
        line = rewrite.expression(picked)
        return relation, Code(source=rewrite.shown(line.file, line.node.lineno) if line else "")


def mended(of_input: Spot | None, of_target: Spot | None, fallback: str) -> Code | None:
    """Return the line that puts inputs and targets into the same order, in place of the later of the lines that did it.

    `of_input`, `of_target`: the lines that reordered inputs and targets, if any. `fallback`: the code of an order, if
    neither line contains one as an index.
    """
    lines = [_line(spot) for spot in (of_input, of_target) if spot is not None]
    readable = [line for line in lines if line is not None]
    if not readable or len(readable) < len(lines):
        return None
    last = max(readable, key=lambda line: line[0].node.lineno)[0]
    if len(readable) == 1:
        return last.with_text(last.node, last.text(_operand(last)))
    index = next((text for _, text in readable if text), fallback)
    changed = [line.with_text(line.node, _in_order(line)) for line, _ in readable]
    if not all(changed):
        return None
    fix = "; ".join([f"order = {index}", *(code.fix for code in changed if code)])
    return Code(source=rewrite.shown(last.file, last.node.lineno), fix=fix)


def _line(spot: Spot | None) -> tuple[Expression, str] | None:
    """Return the expression that reordered rows, and its index as it is written; "" if it has none."""
    expression = rewrite.expression(spot)
    if expression is None or not isinstance(expression.node, (ast.Subscript, ast.Call)):
        return None
    if isinstance(expression.node, ast.Subscript):
        return expression, expression.text(expression.node.slice)
    return expression, expression.text(expression.node.args[1]) if len(expression.node.args) > 1 else ""


def _operand(expression: Expression) -> Any:
    return expression.node.value if isinstance(expression.node, ast.Subscript) else expression.node.args[0]


def _in_order(expression: Expression) -> str:
    """Return an expression with the common order as its index; tf.gather for a call that has none, as a shuffle."""
    node, operand = expression.node, expression.text(_operand(expression))
    if isinstance(node, ast.Subscript):
        return f"{operand}[order]"
    return f"{expression.text(node.func) if len(node.args) > 1 else 'tf.gather'}({operand}, order)"
