"""Edits of the port's code: where an experiment has put something else, and what torch's code does that it does not.

The first are an operator, a function, a call that is left out; the second is put around an expression.
"""

import ast
import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from parity.diagnose.experiment.candidates import ACTIVATIONS, STOPS
from parity.diagnose.experiment.operations import BY_SIGN, FIRST, LEFT_OUT, SECOND, SIGNS
from parity.repair.edit import code
from parity.repair.source import NOTHING, Function, Place, Scoped, Source, Span, given_to, literal, parameters, parsed
from parity.results import Cause, Changed

OPERAND: Final = {FIRST: "left", SECOND: "right"}  # of a binary operation, the one that stays
GRADIENT: Final = "gradient.stopped"
NOTHING_DONE: Final = ("identity", "linear", LEFT_OUT)  # how causes call that no function is applied
MOST_OPERANDS: Final = 3  # that are tried with each expression
WIRING: Final = "module.wiring"
# Keras's names of functions that PyTorch calls otherwise.
RENAMED: Final = {
    "hardsigmoid": "hard_sigmoid",
    "hardswish": "hard_silu",
    "hardtanh": "hard_tanh",
    "logsigmoid": "log_sigmoid",
    "tanhshrink": "tanh_shrink",
    "exp": "exponential",
}
# What Keras's functions are given for the form that is asked for (candidates.FORMS).
ASKED: Final = {"gelu_exact": "approximate=False", "gelu_tanh": "approximate=True"}
# What an expression stands in when its value is used, and is no name that is assigned or called.
USES: Final = (
    *(ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Return, ast.BinOp),
    *(ast.Call, ast.keyword, ast.Starred, ast.List, ast.Tuple, ast.Set),
)


def in_code(cause: Cause, change: Changed | None, source: Source) -> Iterator[tuple[Place, str]]:
    """Yield the places on a change's line of Keras's side, each with the source that is to stand there.

    `change`: what an experiment has changed, or None to look for what stops a gradient on the cause's line.
    """
    for node in source.on_line(int((change or cause).source.rpartition(":")[2])):
        span = source.span(node)
        if isinstance(node, ast.Call) and (kept := _kept(cause, change, node, source)):
            yield Place(source.path, span), kept
        elif change and isinstance(node, ast.BinOp):
            yield from _of_operation(node, change, source)
        elif change and isinstance(node, ast.Call):
            yield from _of_call(node, change, source)


def _of_operation(node: ast.BinOp, change: Changed, source: Source) -> Iterator[tuple[Place, str]]:
    """Yield the places in a binary operation: its operator, or the operands where a computed constant may stand."""
    between = Span(source.span(node.left).end, source.span(node.right).start)
    text = source.bytes[slice(*between)].decode()
    sign = re.sub(r"[\s()\\]", "", text)
    if change.kind == "operator" and sign == change.before and change.after in OPERAND:
        yield Place(source.path, source.span(node)), source.text(getattr(node, OPERAND[change.after]))
    elif change.kind == "operator" and sign == change.before:
        yield Place(source.path, between), text.replace(sign, change.after)
    elif change.kind == "constant" and sign == SIGNS.get(change.owner):
        computed = (each for each in (node.right, node.left) if literal(each) is NOTHING)
        yield from ((Place(source.path, source.span(each)), code(change.after)) for each in computed)


def _of_call(call: ast.Call, change: Changed, source: Source) -> Iterator[tuple[Place, str]]:
    """Yield the places of the name of a called function, or of a call that stands for an operator."""
    if change.kind == "function" and _name(call) == change.before and change.after in ASKED:
        yield Place(source.path, source.span(call)), f"{source.text(call).removesuffix(')')}, {ASKED[change.after]})"
    elif change.kind == "function" and _name(call) == change.before and change.after != LEFT_OUT:
        yield _renamed(call, change.after, source)
    elif change.kind == "operator" and SIGNS.get(_name(call)) == change.before and len(given_to(call)) > 1:
        if change.after in OPERAND:
            yield Place(source.path, source.span(call)), source.text(given_to(call)[change.after == SECOND])
        else:
            yield _renamed(call, BY_SIGN[change.after], source)


def _renamed(call: ast.Call, name: str, source: Source) -> tuple[Place, str]:
    """Return the place of the name of what is called, with another name."""
    end = source.span(call.func).end
    return Place(source.path, Span(end - len(_name(call)), end)), name


def _kept(cause: Cause, change: Changed | None, call: ast.Call, source: Source) -> str:
    """Return what is left of a call that is to be left out: its first argument; "" if the call is to stay."""
    is_left_out = cause.id == GRADIENT and _name(call) in STOPS
    names = (change.before, change.owner.partition(" ")[0]) if change and change.after == LEFT_OUT else ()
    if change is not None and _name(call) in names:
        _, to, dtype = change.before.rpartition(" to ")  # of casts, that to the same type is meant
        is_left_out |= not to or any(dtype in source.text(argument) for argument in given_to(call)[1:])
    return source.text(given_to(call)[0]) if given_to(call) and is_left_out else ""


def _name(call: ast.Call) -> str:
    """Return the last part of the name of what is called."""
    return getattr(call.func, "attr", getattr(call.func, "id", ""))


def lacking(cause: Cause, root: Path) -> Iterator[tuple[Place, str]]:
    """Yield the expressions around which the port may lack what torch's code does, each with its new source.

    They stand in files below `root`, on the lines that the cause names. Another name of a value, as a residual is kept
    by one, is tried first as an operand. Nothing is yielded for causes that are something else.
    """
    # The likeliest first: a function is lacking where its result would be used, an operand where the other one is made.
    lines = cause.lines[::-1] if cause.id == WIRING else cause.lines
    edits = [each for line in lines for each in _on_line(cause, line, root)]
    for is_alias in (True, False):
        yield from ((place, text) for alias, place, text in edits if alias == is_alias)


def _on_line(cause: Cause, line: str, root: Path) -> Iterator[tuple[bool, Place, str]]:
    """Yield the expressions on a line, the outer ones first, with the new source, and whether that has an alias."""
    name, _, number = line.rpartition(":")
    source = parsed(Path(name).absolute(), root)
    if source is None:
        return
    used = [each for each in source.on_line(int(number)) if isinstance(each, ast.expr)]
    used = [each for each in used if _is_used(each, source)]
    before = [value for node in used for value in _assigned(node, source)] if cause.id == WIRING else []
    for node in dict.fromkeys([*used, *before]):
        text = source.text(node)
        is_simple = isinstance(node, ast.Name | ast.Call | ast.Attribute | ast.Subscript)
        for is_alias, template in _templates(cause, node, source):
            yield is_alias, Place(source.path, source.span(node)), template.format(text if is_simple else f"({text})")


def _templates(cause: Cause, node: ast.AST, source: Source) -> list[tuple[bool, str]]:
    """Return what torch may do to a value {} that the port leaves as it is, and whether that has an alias."""
    torch, keras = cause.sides.get("torch"), cause.sides.get("keras")
    # Whether what differs is known to be a setting of the port's, or one of a framework's layer.
    of_keras = [change.side == "keras" for change in cause.changes]
    is_in_port = any(of_keras) if of_keras else cause.id != "module.scale"
    if all(type(value) in (int, float) for value in (torch, keras)) and not is_in_port:
        neutral = {1: f"{code(torch)} * {{}}", 0: f"{{}} + {code(torch)}"}
        return [(False, neutral[keras])] if keras in neutral else []
    if cause.id == "activation.kind" and keras in NOTHING_DONE and str(torch).isidentifier():
        home = "activations" if torch in ACTIVATIONS else "ops"
        forms = ["", ", approximate=True"] if torch == "gelu" else [""]  # torch's form is an argument, not in the name
        return [(False, f"keras.{home}.{RENAMED.get(str(torch), torch)}({{}}{form})") for form in forms]
    if cause.id == WIRING and torch in SIGNS.values() and keras in (FIRST, SECOND):
        operands = [(alias, name) for alias, name in _operands(node, source) if name != source.text(node)]
        return [
            (alias, f"{{}} {torch} {name}" if keras == FIRST else f"{name} {torch} {{}}")
            for alias, name in operands[:MOST_OPERANDS]
        ]
    return []


def _operands(node: ast.AST, source: Source) -> list[tuple[bool, str]]:
    """Return the names of values around an expression: first aliases (True), then those last before its end."""
    function = source.around(node, Function)
    if function is None or isinstance(function, ast.Lambda):
        return []
    given = [each.name for each in parameters(function)[source.is_method(function) :]]
    names = (each for each in source.nodes if isinstance(each, ast.Name) and source.around(each, Scoped) is function)
    before = [each.id for each in names if source.span(each).end <= source.span(node).end]
    assigned = {name: source.assigned(name, function) for name in [*before, *given]}
    values = [name for name in [*reversed(before), *given] if name in given or assigned[name] is not None]
    operands = [(isinstance(assigned[name], ast.Name), name) for name in dict.fromkeys(values)]
    return sorted(operands, key=lambda operand: not operand[0])


def _assigned(node: ast.expr, source: Source) -> list[ast.expr]:
    """Return what is assigned to a name before it is used on a line, last first, unless that is in another branch."""
    blocks = _blocks(node, source)
    earlier = [
        each.value
        for each in source.nodes
        if isinstance(each, ast.Assign) and source.span(each).end < source.span(node).start
        if source.text(each.targets[0]) == source.text(node) and _blocks(each, source)[0] in blocks
    ]
    return earlier[::-1] if isinstance(node, ast.Name) else []


def _blocks(node: ast.AST, source: Source) -> list[tuple[ast.AST, str]]:
    """Return the blocks of statements around a node, the innermost first: of what each is which part ("orelse")."""
    pairs = itertools.pairwise([node, *source.parents(node)])
    fields = ((each, owner, *field) for each, owner in pairs for field in ast.iter_fields(owner))
    return [(owner, part) for each, owner, part, block in fields if isinstance(block, list) and each in block]


def _is_used(node: ast.expr, source: Source) -> bool:
    """Return whether an expression has a value that is used where it stands: it is no target and no argument's name."""
    parent = next(source.parents(node), None)
    others = (*getattr(parent, "targets", ()), getattr(parent, "func", None), getattr(parent, "annotation", None))
    return literal(node) is NOTHING and isinstance(parent, USES) and node not in others
