"""Rewrite the user's line of code that runs: look up its expression in the source file and replace a part of it.

Python knows for every instruction the columns of the source that it comes from. So the fix that a finding advises is
made from the user's own line, with the user's own names. Sources are never searched: only what ran is looked up.
"""

import ast
import contextlib
import linecache
import weakref
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from types import CodeType, FrameType, ModuleType
from typing import Any, NamedTuple

from parity.core.ownership import shown as shown
from parity.doctor.evidence import Code, Cut

STORES = ("append", "appendleft", "add", "insert", "put", "push")  # methods that keep their last argument
# Nodes that can be followed by a dot without parentheses.
ATOMS = (ast.Name, ast.Attribute, ast.Call, ast.Subscript, ast.Constant)


class Spot(NamedTuple):
    """An instruction of a frame, without a reference to the frame."""

    code: CodeType  # the code object
    instruction: int  # the offset of the instruction
    names: dict[str, Any]  # the globals, and the modules among the locals


class Expression(NamedTuple):
    """An expression or statement in a source file."""

    file: str  # the file
    node: Any  # its AST node
    names: dict[str, Any]  # the names that it can refer to (`Spot.names`)

    @property
    def function(self) -> str:
        """Return the last name of the function that is called; "" if this is no call."""
        called = getattr(self.node, "func", None)
        return getattr(called, "attr", getattr(called, "id", ""))

    def operand(self) -> Any:
        """Return the node that a call or an attribute applies to: x of f(x), x.f() and x.f."""
        function = root = getattr(self.node, "func", self.node)
        while isinstance(root, ast.Attribute):
            root = root.value
        owner = self.names.get(root.id) if isinstance(root, ast.Name) else None
        if isinstance(function, ast.Attribute) and not isinstance(owner, ModuleType):
            return function.value
        arguments = getattr(self.node, "args", ())
        return arguments[0] if arguments else None

    def argument(self, name: str, place: int | None = None) -> Any:
        """Return the node of a call's argument, given by its name or by its position `place`, or None."""
        named = [argument.value for argument in getattr(self.node, "keywords", ()) if argument.arg == name]
        given = [] if place is None else getattr(self.node, "args", ())[place : place + 1]
        return next(iter((*named, *given)), None)

    def text(self, node: Any = None) -> str:
        """Return the source of the expression, or of a node in it; "" if it spans several lines."""
        node = self.node if node is None else node
        line = _bytes(self.file, node.lineno)
        return line[node.col_offset : node.end_col_offset].decode() if node.lineno == node.end_lineno else ""

    def behind(self) -> str:
        """Return the rest of the expression's last line."""
        return _bytes(self.file, self.node.end_lineno)[self.node.end_col_offset :].decode()

    def with_text(self, node: Any, text: str) -> Code | None:
        """Return the line with `text` in place of a node; None if the node spans lines or there is no text."""
        if node is None or not text or node.lineno != node.end_lineno:
            return None
        line = _bytes(self.file, node.lineno)
        fixed = line[: node.col_offset] + text.encode() + line[node.end_col_offset :]
        return Code(source=shown(self.file, node.lineno), fix=fixed.decode().strip())

    def with_keyword(self, name: str, value: str, place: int | None = None) -> Code | None:
        """Return the call with an argument set, by its name or, if it was given so, by its position `place`."""
        if (node := self.argument(name, place)) is not None:
            return self.with_text(node, value)
        separator = ", " if self.node.args or self.node.keywords else ""
        return self.with_text(self.node, f"{self.text()[:-1]}{separator}{name}={value})" if self.text() else "")

    def squeezed(self, left: int, right: int, template: str) -> Code | None:
        """Return the line with `template` in place of the operand that has one axis more; {} is the operand.

        `left` and `right` are the numbers of axes of the operands of an operator, or of a call's first arguments.
        """
        operands = [getattr(self.node, side) for side in ("left", "right") if hasattr(self.node, side)]
        operands = operands or list(getattr(self.node, "args", ()))
        return self.wrapped(operands[left < right], template) if len(operands) > 1 and abs(left - right) == 1 else None

    def called(self, module: ModuleType, default: str) -> str:
        """Return what the source calls a module."""
        return next((name for name, value in self.names.items() if value is module), default)

    def wrapped(self, part: Any, template: str, node: Any = None) -> Code | None:
        """Return the line with `template` in place of a node, which is by default the part; {} is the part's source."""
        if part is None:
            return None
        text = self.text(part)
        text = f"({text})" if text and not isinstance(part, ATOMS) else text
        return self.with_text(node or part, template.format(text))

    def unwrapped(self) -> Code | None:
        """Return the line without the call: f(x), x.f() and x.f become x."""
        return self.wrapped(self.operand(), "{}", self.node)


def spot(frame: FrameType) -> Spot:
    """Return the instruction that a frame is executing."""
    imported = {key: value for key, value in frame.f_locals.items() if isinstance(value, ModuleType)}
    return Spot(frame.f_code, frame.f_lasti, {**frame.f_globals, **imported} if imported else frame.f_globals)


def expression(at: Spot | None) -> Expression | None:
    """Return the expression at an instruction, or None if its source is not available."""
    node = _nodes(at.code.co_filename).get(_positions(at)) if at else None
    return Expression(at.code.co_filename, node, at.names) if at and node else None


def statement(at: Spot | None) -> Expression | None:
    """Return the one-line statement that contains an instruction, or None."""
    node = _statements(at.code.co_filename).get(_positions(at)[0]) if at else None
    return Expression(at.code.co_filename, node, at.names) if at and node else None


def _positions(at: Spot) -> tuple[int | None, ...]:
    return list(at.code.co_positions())[at.instruction // 2]


def name(frame: FrameType | None, target: Any) -> str:
    """Return what a frame's function calls an object: a variable or an attribute of one; "" if that is not known."""
    scopes = (frame.f_locals, frame.f_globals) if frame else ()
    return next((name for names in scopes for name in _names(names, target)), "")


def first_name(frame: FrameType | None, targets: Iterable[Any], default: str) -> str:
    """Return what a frame's function calls the first of some objects that it has a name for, or else the default."""
    return next(filter(None, (name(frame, target) for target in targets)), default)


def _names(names: dict[str, Any], target: Any) -> Iterator[str]:
    """Yield the variables, then the attributes of variables, that hold an object; not of modules and classes."""
    yield from [key for key, value in names.items() if value is target]
    for key, value in list(names.items()):
        if not isinstance(value, (ModuleType, type)):
            with contextlib.suppress(AttributeError, TypeError):  # objects without attributes, or with odd ones
                attributes = object.__getattribute__(value, "__dict__")
                yield from [f"{key}.{name}" for name, part in attributes.items() if part is target]


def appended(frame: FrameType | None, target: Any) -> Code | None:
    """Return the line that appends an object to a list, in the function that runs in a frame, with it detached."""
    variable = name(frame, target)
    for node in _of_function(frame) if variable else ():
        called = isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "append"
        if called and [getattr(given, "id", "") for given in node.args] == [variable]:
            call = _expression(frame, node)
            return call.with_text(node.args[0], f"{variable}.detach()") if call else None
    return None


def assigned(frame: FrameType | None, variable: str) -> Expression | None:
    """Return the value last assigned to a variable above the line that a frame is executing."""
    assigned_values = [
        node.value
        for node in _of_function(frame)
        if isinstance(node, ast.Assign) and frame and node.lineno < frame.f_lineno
        if isinstance(node.targets[0], ast.Name) and node.targets[0].id == variable
    ]
    return _expression(frame, max(assigned_values, key=lambda node: node.lineno)) if assigned_values else None


class Integers:
    """Cuts at ops that make integers of scores (such as argmax), and the line of the loss as it should read instead."""

    def __init__(self, is_label: Callable[[Any, Any], bool], cross_entropy: Callable[[Expression, str, str], str]):
        self.is_label = is_label  # whether a value may be the labels that integers of a shape match
        self.cross_entropy = cross_entropy  # returns the code of a loss, for the line that made it, scores and labels
        self.cuts: list[tuple[Cut, weakref.ref[Any], Any]] = []  # each with the scores, and the shape of the integers

    def explain(self, frame: FrameType | None, loss: Any) -> None:
        """Find the corrections when a backward pass begins: by then scores, labels and loss have names in the code."""
        for cut, reference, shape in self.cuts:
            scores = reference()
            if frame is not None and scores is not None:
                made, of_scores = assigned(frame, name(frame, loss)), name(frame, scores)
                labels = [key for key, value in frame.f_locals.items() if self.is_label(value, shape)]
                text = self.cross_entropy(made, of_scores, labels[0]) if made and of_scores and labels else ""
                cut.mended = made.with_text(made.node, text) if made else None


def detached(at: Spot) -> Code | None:
    """Return the line that stores what an instruction computes where it outlives the function, with it detached."""
    running, node = statement(at), None
    if running is not None and isinstance(running.node, ast.Assign) and isinstance(running.node.targets[0], ast.Name):
        lines, name = {line for *_, line in at.code.co_lines()}, running.node.targets[0].id
        stores = [_stored(line) for line in _statements(running.file).values() if line.lineno in lines]
        node = next((value for value in stores if getattr(value, "id", "") == name), None)
    elif running is not None:
        node = _stored(running.node)
    return running.wrapped(node, "{}.detach()") if running else None


def _stored(line: Any) -> Any:
    """Return the value that a statement appends to a container, or sets as an attribute or item; else None."""
    if isinstance(line, ast.Assign) and isinstance(line.targets[0], (ast.Attribute, ast.Subscript)):
        return line.value
    call = getattr(line, "value", None) if isinstance(line, ast.Expr) else None
    is_store = getattr(getattr(call, "func", None), "attr", "") in STORES
    return call.args[-1] if call and is_store and call.args else None


def _of_function(frame: FrameType | None) -> list[Any]:
    if frame is None:
        return []
    lines = {line for *_, line in frame.f_code.co_lines() if line is not None}
    return [node for node in _nodes(frame.f_code.co_filename).values() if node.lineno in lines]


def _expression(frame: FrameType | None, node: Any) -> Expression | None:
    return Expression(frame.f_code.co_filename, node, spot(frame).names) if frame else None


def code(at: Spot | None, change: Callable[[Expression], Code | None]) -> Code | None:
    """Return the line at an instruction as `change` rewrites it, or None if its source is not available."""
    running = expression(at)
    return change(running) if running else None


@cache
def _nodes(file: str) -> dict[tuple[int | None, ...], Any]:
    """Return the statements and expressions of a file by position; of several at one position the innermost."""
    nodes = (node for node in _walk(file) if not isinstance(node, ast.Expr))
    return {(node.lineno, node.end_lineno, node.col_offset, node.end_col_offset): node for node in nodes}


@cache
def _statements(file: str) -> dict[int | None, Any]:
    """Return the one-line statements of a file by line; of several in a line the last."""
    return {node.lineno: node for node in _walk(file) if isinstance(node, ast.stmt) and node.lineno == node.end_lineno}


def _walk(file: str) -> Iterator[Any]:
    with contextlib.suppress(SyntaxError, ValueError):
        tree = ast.parse("".join(linecache.getlines(file)))
        yield from (node for node in ast.walk(tree) if isinstance(node, (ast.stmt, ast.expr)))


def _bytes(file: str, number: int) -> bytes:
    return linecache.getline(file, number).rstrip("\n").encode()
