"""Mutations of what is handed over: numbers, switches, words, arguments left out, axes."""

import ast
import itertools
from collections.abc import Iterator
from typing import Any

import libcst as cst

from mutating.code import Change, Code, called, expression

NUMBER, SWITCH, WORD, DROPPED = "number of an argument", "switch", "word", "argument left out"
CONSTANT, AXIS, CAST = "constant", "axis", "cast"

# Arguments without a meaning for what is computed, once weights are given.
MEANINGLESS = ("name", "initializer", "seed", "dtype", "trainable", "autocast", "cache_dir")
AXES = ("axis", "axes", "dim", "perm", "dims", "num_or_size")
ENUMERATIONS = (
    ("relu", "gelu", "silu", "tanh", "sigmoid", "elu", "softplus", "relu6", "leaky_relu", "softsign", "selu"),
    ("same", "valid", "causal"),
    ("nearest", "bilinear", "bicubic"),
    ("max", "avg"),
    ("sum", "mean", "concat", "mul", "ave"),
    ("zeros", "ones"),
)
DTYPES = ("float32", "float64")
HALVES = ("bfloat16", "float16")


def changes(code: Code, node: cst.CSTNode) -> Iterator[Change]:
    """Yield the mutations of a node that is an argument, a default, an entry of a dict, or a constant in code."""
    if (value := literal(node)) is not None and not isinstance(code.parent(node), cst.UnaryOperation):
        yield from _of_value(code, node, value)
    elif isinstance(node, (cst.Tuple, cst.List)):
        yield from _of_permutation(code, node)
    elif isinstance(node, cst.Call):
        yield from _dropped(code, node)


def literal(node: cst.CSTNode) -> Any:
    """Return the value of a number, a truth value or a text; None of anything else."""
    signed = isinstance(node, cst.UnaryOperation) and isinstance(node.expression, (cst.Integer, cst.Float))
    plain = isinstance(node, (cst.Integer, cst.Float, cst.SimpleString))
    if not (signed or plain or (isinstance(node, cst.Name) and node.value in ("True", "False"))):
        return None
    return ast.literal_eval(cst.Module([]).code_for_node(node))


def alternatives(value: Any) -> list[Any]:
    """Return what a value may be mutated to."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, str):
        words = next((words for words in ENUMERATIONS if value in words), ())
        return [word for word in words if word != value]
    if isinstance(value, int):
        return list(dict.fromkeys(new for new in (value + 1, value - 1, 2 * value) if new != value))
    return [2.0 * value, 0.5 * value, 10.0 * value] if value else [0.1, 1.0]


def _of_value(code: Code, node: cst.CSTNode, value: Any) -> Iterator[Change]:
    """Yield the mutations of a literal, by where it stands."""
    name, is_argument = _role(code, node)
    if name is None or any(name == each or name.endswith(f"_{each}") for each in MEANINGLESS if each != "dtype"):
        return
    if isinstance(value, str):
        yield from _of_text(name, node, value)
        return
    if name in AXES and not isinstance(value, bool):
        new = next(each for each in (1, -2) if each != value)
        yield Change(AXIS, name, node, expression(str(new)), value, new)
        return
    kind = SWITCH if isinstance(value, bool) else NUMBER if is_argument else CONSTANT
    for new in alternatives(value):
        yield Change(kind, name, node, expression(repr(new)), value, new)


def _of_text(name: str, node: cst.CSTNode, value: str) -> Iterator[Change]:
    if value in DTYPES:
        yield from (Change(CAST, name, node, cst.SimpleString(repr(new)), value, new) for new in HALVES)
    elif "->" in value and "," in value:
        given, _, made = value.partition("->")
        for i, j in itertools.pairwise(range(len(made))):
            new = f"{given}->{made[:i]}{made[j]}{made[i]}{made[j + 1 :]}"
            yield Change(AXIS, name or "equation", node, cst.SimpleString(repr(new)), value, new)
    else:
        for new in alternatives(value):
            yield Change(WORD, name, node, cst.SimpleString(repr(new)), value, new)


def _role(code: Code, node: cst.CSTNode) -> tuple[str | None, bool]:
    """Return the name of the setting that a literal gives, and whether it is an argument; None where it gives none."""
    outer = code.parent(node)
    if isinstance(outer, cst.Element):  # of a tuple or list, as in strides=(2, 2)
        return _role(code, code.parent(outer)) if code.parent(outer) else (None, False)  # type: ignore[arg-type]
    if isinstance(outer, cst.Arg):
        call = code.parent(outer)
        is_positional = isinstance(call, cst.Call) and outer.keyword is None
        function = called(call.func) if is_positional else ""  # type: ignore[union-attr]
        return (outer.keyword.value if outer.keyword else function), True
    if isinstance(outer, cst.Param):
        return outer.name.value, True
    if isinstance(outer, cst.DictElement) and outer.value is node:
        return str(literal(outer.key) or ""), True
    if isinstance(outer, (cst.BinaryOperation, cst.ComparisonTarget, cst.Comparison, cst.Index, cst.IfExp)):
        return "", False
    if isinstance(outer, cst.Assign):
        return called(outer.targets[0].target), False
    return None, False


def _of_permutation(code: Code, node: cst.Tuple | cst.List) -> Iterator[Change]:
    """Yield a permutation of axes with two of them exchanged: (0, 2, 1, 3) becomes (0, 1, 2, 3)."""
    values = [literal(element.value) for element in node.elements]
    if not all(isinstance(value, int) for value in values) or len(values) < 2 or len(set(values)) < len(values):
        return
    if sorted(values) not in (list(range(len(values))), list(range(1, len(values) + 1))):
        return
    for i, j in itertools.pairwise(range(len(values))):
        new = list(values)
        new[i], new[j] = new[j], new[i]
        replacement = expression(", ".join(map(str, new))) if isinstance(node, cst.Tuple) else expression(str(new))
        yield Change(AXIS, "permutation", node, replacement, values, new)


def _dropped(code: Code, node: cst.Call) -> Iterator[Change]:
    """Yield a call without one of its keyword arguments."""
    for number, arg in enumerate(node.args):
        name = arg.keyword.value if arg.keyword else ""
        if not name or name.startswith("_") or name.endswith(MEANINGLESS):
            continue
        rest = [*node.args[:number], *node.args[number + 1 :]]
        if rest:
            rest[-1] = rest[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
        old = literal(arg.value)
        yield Change(DROPPED, name, node, node.with_changes(args=rest), old, None, at=arg)
