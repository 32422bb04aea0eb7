"""Whether the targets of a loss stand in the order of the samples that the model was given.

Rows are compared by their numbers, so that it does not matter by which means they were put into another order. A
batch tells nothing if its rows are not all different, or if its numbers were changed on the way.
"""

import ast
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from parity.doctor import rewrite
from parity.doctor.evidence import Code
from parity.doctor.rewrite import Expression, Spot

Rows = list[bytes]


def rows(array: Any) -> Rows:
    """Return each sample's numbers, whatever their type and shape."""
    wide = np.asarray(array, np.float64)
    return [row.tobytes() for row in wide.reshape(len(wide), -1)] if wide.ndim else []


def order(given: Rows, seen: Rows) -> list[int] | None:
    """Return for each row that was seen its number among those given; None if they are not the same, or not unique."""
    places = {row: number for number, row in enumerate(given)}
    if len(places) < len(given) or sorted(given) != sorted(seen):
        return None
    return [places[row] for row in seen]


def compared(batch: dict[str, Rows], fed: Sequence[Rows], target: Rows) -> Literal["", "together", "apart"]:
    """Return how targets stand to what the model was fed, both taken from a batch; "" if that is not known.

    `fed`: what the model got in each of its calls: it is enough that the targets stand in the order of one.
    """
    found = [
        any([each[i] for i in numbers] == target for each in labels)
        for seen in fed
        for name, given in batch.items()
        if (labels := [other for key, other in batch.items() if key != name and sorted(other) == sorted(target)])
        if len(set(target)) > 1 and len(target) == len(seen) and (numbers := order(given, seen)) is not None
    ]
    return ("together" if any(found) else "apart") if found else ""


def mended(of_input: Spot | None, of_target: Spot | None, fallback: str) -> Code | None:
    """Return the line that puts both into one order: in place of the later one of the lines that did it.

    `fallback`: the order, where neither line has it as an index.
    """
    lines = [_line(spot) for spot in (of_input, of_target) if spot is not None]
    known = [line for line in lines if line is not None]
    if not known or len(known) < len(lines):
        return None
    last = max(known, key=lambda line: line[0].node.lineno)[0]
    if len(known) == 1:
        return last.with_text(last.node, last.text(_operand(last))) if last.text(_operand(last)) else None
    index = next((text for _, text in known if text), fallback)
    changed = [
        each.with_text(
            each.node,
            f"{each.text(_operand(each))}[order]" if isinstance(each.node, ast.Subscript) else _gathered(each),
        )
        for each, _ in known
    ]
    if not all(changed):
        return None
    return Code(
        source=rewrite.shown(last.file, last.node.lineno),
        fix="; ".join([f"order = {index}", *(code.fix for code in changed if code)]),
    )


def _line(spot: Spot | None) -> tuple[Expression, str] | None:
    """What put rows into an order, and its index as it is written; "" if it has none."""
    found = rewrite.expression(spot)
    if found is None or not isinstance(found.node, (ast.Subscript, ast.Call)):
        return None
    if isinstance(found.node, ast.Subscript):
        return found, found.text(found.node.slice)
    return found, found.text(found.node.args[1]) if len(found.node.args) > 1 else ""


def _operand(found: Expression) -> Any:
    return found.node.value if isinstance(found.node, ast.Subscript) else found.node.args[0]


def _gathered(found: Expression) -> str:
    """A call that picks rows by an index takes the common one; one that shuffles becomes such a call."""
    node, text = found.node, found.text
    if len(node.args) > 1:
        return f"{text(node.func)}({text(node.args[0])}, order)"
    return f"tf.gather({text(node.args[0])}, order)"
