"""What torch's code does and the port's does not, put around an expression on the line at which their calls part."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import libcst as cst

from parity.core.errors import UsageError
from parity.diagnose.experiment.candidates import ACTIVATIONS
from parity.diagnose.experiment.operations import FIRST, LEFT_OUT, SECOND, SIGNS
from parity.repair.literals import code
from parity.repair.origins import Place
from parity.repair.source import NOTHING, Source, literal, parameters
from parity.results import Cause

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
# What an expression stands in when its value is used, and is no name that is assigned or called.
USES: Final = (cst.Assign, cst.AnnAssign, cst.AugAssign, cst.Return, cst.Arg, cst.BinaryOperation, cst.Element)


def lacking(cause: Cause, root: Path) -> Iterator[tuple[Place, str]]:
    """Yield the expressions around which the port may lack what torch's code does, each with its new source.

    They stand in files below `root`, on the lines that the cause names. Another name of a value, as a residual is kept
    by one, is tried first as an operand. Nothing is yielded for causes that are something else.
    """
    found = [each for line in _lines(cause) for each in _on_line(cause, line, root)]
    for is_alias in (True, False):
        yield from ((place, text) for alias, place, text in found if alias == is_alias)


def _lines(cause: Cause) -> list[str]:
    """Return the lines of the port, the likeliest first: a function is lacking where its result would be used.

    A further operand may be lacking where the other one is made.
    """
    return cause.lines[::-1] if cause.id == WIRING else cause.lines


def _on_line(cause: Cause, line: str, root: Path) -> Iterator[tuple[bool, Place, str]]:
    """Yield the expressions on a line, the outer ones first, with the new source, and whether that has an alias."""
    name, _, number = line.rpartition(":")
    path = Path(name).absolute()
    if not path.is_relative_to(root):
        return
    try:
        source = Source(path)
    except UsageError:
        return
    used = [each for each in source.on_line(int(number)) if isinstance(each, cst.BaseExpression)]
    used = [each for each in used if _is_used(each, source)]
    before = [value for node in used for value in _assigned(node, source)] if cause.id == WIRING else []
    for node in dict.fromkeys([*used, *before]):
        text = source.text(node)
        is_simple = isinstance(node, (cst.Name, cst.Call, cst.Attribute, cst.Subscript))
        for is_alias, template in _templates(cause, node, source):
            yield is_alias, Place(path, source.span(node)), template.format(text if is_simple else f"({text})")


def _templates(cause: Cause, node: cst.CSTNode, source: Source) -> list[tuple[bool, str]]:
    """Return what torch may do to a value {} that the port leaves as it is, and whether that has an alias."""
    torch, keras = cause.sides.get("torch"), cause.sides.get("keras")
    if all(type(value) in (int, float) for value in (torch, keras)) and not _is_in_port(cause):
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


def _operands(node: cst.CSTNode, source: Source) -> list[tuple[bool, str]]:
    """Return the names of values in the function around an expression, and whether they are aliases.

    Those come first, then those that stand last before its end.
    """
    function = source.function(node)
    if not isinstance(function, cst.FunctionDef):
        return []
    given = [each.name.value for each in parameters(function)[source.is_method(function) :]]
    names = (each for each in source.nodes if isinstance(each, cst.Name) and source.scope(each) is function)
    before = [each.value for each in names if source.span(each).end <= source.span(node).end]
    assigned = {name: source.assigned(name, function) for name in [*before, *given]}
    values = [name for name in [*reversed(before), *given] if name in given or assigned[name] is not None]
    return sorted(((isinstance(assigned[name], cst.Name), name) for name in dict.fromkeys(values)), key=_not_alias)


def _not_alias(operand: tuple[bool, str]) -> bool:
    return not operand[0]


def _is_in_port(cause: Cause) -> bool:
    """Return whether what differs is known to be a setting of the port's, or one of a framework's layer."""
    if not cause.changes:
        return cause.id != "module.scale"
    return any(change.side == "keras" for change in cause.changes)


def _assigned(node: cst.BaseExpression, source: Source) -> list[cst.BaseExpression]:
    """Return what is assigned to a name before it is used on a line, last first, unless that is in another branch."""
    blocks = _blocks(node, source)
    earlier = [
        each.value
        for each in source.nodes
        if isinstance(each, cst.Assign) and source.span(each).end < source.span(node).start
        if source.text(each.targets[0].target) == source.text(node) and _blocks(each, source)[0] in blocks
    ]
    return earlier[::-1] if isinstance(node, cst.Name) else []


def _blocks(node: cst.CSTNode, source: Source) -> list[cst.CSTNode]:
    """Return the blocks of statements around a node, the innermost first, the module last."""
    return [each for each in source.parents(node) if isinstance(each, (cst.IndentedBlock, cst.Module))]


def _is_used(node: cst.BaseExpression, source: Source) -> bool:
    """Return whether an expression has a value that is used where it stands: it is no target and no argument's name."""
    parent = next(source.parents(node), None)
    if literal(node) is not NOTHING:
        return False
    return parent.value is node if isinstance(parent, cst.Arg) else isinstance(parent, USES)
