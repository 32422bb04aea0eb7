"""The places in code where an experiment has put something else: an operator, a function, a call that is left out."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import libcst as cst

from parity.diagnose.experiment.candidates import STOPS
from parity.diagnose.experiment.operations import BY_SIGN, FIRST, LEFT_OUT, SECOND, SIGNS
from parity.repair.literals import code
from parity.repair.origins import Place
from parity.repair.source import NOTHING, Source, Span, literal
from parity.results import Cause, Changed

OPERAND: Final = {FIRST: "left", SECOND: "right"}  # of a binary operation, the one that stays
GRADIENT: Final = "gradient.stopped"


def in_code(cause: Cause, change: Changed | None, path: Path) -> Iterator[tuple[Place, str]]:
    """Yield the places on a change's line of Keras's side, each with the source that is to stand there.

    Args:
        cause: the cause that the change explains.
        change: what an experiment has changed, or None to look for what stops a gradient on the cause's line.
        path: the file.

    Raises UsageError if the file cannot be parsed.
    """
    source, number = Source(path), int((change or cause).source.rpartition(":")[2])
    for node in source.on_line(number):
        span = source.span(node)
        if isinstance(node, cst.Call) and (kept := _kept(cause, change, node, source)):
            yield Place(path, span), kept
        elif change and isinstance(node, cst.BinaryOperation):
            yield from _of_operation(node, change, source)
        elif change and isinstance(node, cst.Call):
            yield from _of_call(node, change, source)


def _of_operation(node: cst.BinaryOperation, change: Changed, source: Source) -> Iterator[tuple[Place, str]]:
    """Yield the places in a binary operation: its operator, or the operands where a computed constant may stand."""
    sign = source.text(node.operator).strip()
    if change.kind == "operator" and sign == change.before:
        yield _of_operator(node, change.after, source)
    elif change.kind == "constant" and sign == SIGNS.get(change.owner):
        computed = (each for each in (node.right, node.left) if literal(each) is NOTHING)
        yield from ((Place(source.path, source.span(each)), code(change.after)) for each in computed)


def _of_call(call: cst.Call, change: Changed, source: Source) -> Iterator[tuple[Place, str]]:
    """Yield the places of the name of a called function, or of a call that stands for an operator."""
    if change.kind == "function" and _name(call) == change.before and change.after != LEFT_OUT:
        yield _renamed(call, change.after, source)
    elif change.kind == "operator" and SIGNS.get(_name(call)) == change.before and len(call.args) > 1:
        yield _of_sign(call, change.after, source)


def _of_sign(call: cst.Call, after: str, source: Source) -> tuple[Place, str]:
    """Return the place of a call that stands for an operator, with another one's, or with one of its operands."""
    if after in OPERAND:
        return Place(source.path, source.span(call)), source.text(call.args[after == SECOND].value)
    return _renamed(call, BY_SIGN[after], source)


def _renamed(call: cst.Call, name: str, source: Source) -> tuple[Place, str]:
    """Return the place of the name of what is called, with another name."""
    end = source.span(call.func).end
    return Place(source.path, Span(end - len(_name(call)), end)), name


def _of_operator(node: cst.BinaryOperation, after: str, source: Source) -> tuple[Place, str]:
    """Return the place of an operator with another, or of its operation with one of its operands."""
    if after in OPERAND:
        return Place(source.path, source.span(node)), source.text(getattr(node, OPERAND[after]))
    between = Span(source.span(node.left).end, source.span(node.right).start)
    text = source.bytes[between.start : between.end].decode()
    return Place(source.path, between), text.replace(source.text(node.operator).strip(), after)


def _kept(cause: Cause, change: Changed | None, call: cst.Call, source: Source) -> str:
    """Return what is left of a call that is to be left out: its first argument; "" if the call is to stay."""
    stops = cause.id == GRADIENT and _name(call) in STOPS
    is_left_out = change is not None and change.after == LEFT_OUT and _is_meant(call, change, source)
    return source.text(call.args[0].value) if call.args and (stops or is_left_out) else ""


def _is_meant(call: cst.Call, change: Changed, source: Source) -> bool:
    """Return whether a call is the one that was left out: of casts, that to the same type."""
    if _name(call) not in (change.before, change.owner.partition(" ")[0]):
        return False
    _, to, dtype = change.before.rpartition(" to ")
    return not to or any(dtype in source.text(argument.value) for argument in call.args[1:])


def _name(call: cst.Call) -> str:
    """Return the last part of the name of what is called."""
    return call.func.attr.value if isinstance(call.func, cst.Attribute) else getattr(call.func, "value", "")
